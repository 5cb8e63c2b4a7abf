"""What starts `paddock` commands elsewhere: job scripts, manifests, ssh, containers."""
