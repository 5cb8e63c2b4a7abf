"""How a step changes the weights: optimizers, the learning rate, and the average of the weights."""
