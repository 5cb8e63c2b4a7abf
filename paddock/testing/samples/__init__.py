"""Small data for tests, made in a moment: texts, corpora, images, configs, run directories and contributions."""
