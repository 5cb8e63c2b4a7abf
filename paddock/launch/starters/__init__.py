"""What starts `paddock` commands on other machines, or as if there were some: scripts, manifests, ssh, containers."""
