"""The recognition pipeline: image, features, object models, classifier, verification (Cachier, 1.1)."""
