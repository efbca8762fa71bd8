"""The page, figures and tables of footprints, made from their records. No torch."""
