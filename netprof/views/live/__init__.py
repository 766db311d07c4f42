"""The live view: pure functions from what is going on to rows of text, and the terminal they are put on."""
