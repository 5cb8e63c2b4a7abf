"""The files of a checkpoint, one a process: pieces of tensors, in blocks with checksums, with a safetensors header."""
