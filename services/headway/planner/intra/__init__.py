"""The intra-operator pass: how every operator is split over one device mesh (dissertation section 3.4)."""
