"""What a device must do to carry models: `paddock check device NAME`, on hardware that nobody here has seen."""
