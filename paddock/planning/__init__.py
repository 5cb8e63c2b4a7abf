"""What a job needs and does, known without its hardware."""
