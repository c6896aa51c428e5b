"""A graph of a model beside the model: every named activation, at several lengths."""
