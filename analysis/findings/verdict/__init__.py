"""The verdict, and the first screen of a report."""
