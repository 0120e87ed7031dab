"""Where bytes are stored: artifacts in a folder or in S3, and the files of owners."""
