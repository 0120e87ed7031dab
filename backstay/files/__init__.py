"""Where bytes lie: artifacts in a folder or in S3, and the files of owners."""
