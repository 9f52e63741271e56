"""`headway plan serve`, `frontier` and `explain PLAN`: many models on few devices, without a running stack."""
