"""my-app: a PyTorch model trained with Flower, its devices scheduled by fedcell."""
