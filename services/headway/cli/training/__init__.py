"""`headway plan train`: plans for training."""
