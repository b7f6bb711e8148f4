"""The cloud: owns the catalogues, trains and indexes object models, answers what the edge cannot."""
