"""Models: backbones, the schema-reading decision model, plain classifiers, the frozen sentence encoder.

The modules need torch and transformers (extra `train`); nothing is imported here.
"""
