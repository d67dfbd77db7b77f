"""The text index: segmentation, postings, ranking, and what keeps erased words out of its pages."""
