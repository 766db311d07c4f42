"""Mutation testing: small changes of the code, each of which some unit test has to notice."""
