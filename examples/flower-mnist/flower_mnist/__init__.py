"""The paper's MLP on MNIST, trained by Flower's nodes, scheduled by fedcell."""
