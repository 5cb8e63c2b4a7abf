"""What the files of a contribution say, each looked at by one check; nothing of them is imported or run."""
