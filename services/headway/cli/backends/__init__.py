"""`headway plan backends`."""
