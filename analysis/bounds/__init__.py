"""What a rank waits for at least and at most, where it is only seen to launch: the wire tells the rest."""
