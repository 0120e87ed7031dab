"""Small PDFs for tests, which may say what a practice gateway shall do with them."""


def pdf(text: str = "hello", meets: str | None = None, bytes_min: int = 0) -> bytes:
    wanted = f"%practice: {meets}\n" if meets else ""
    head = f"%PDF-1.4\n{wanted}1 0 obj <</Type /Page>> endobj\nBT ({text}) Tj ET\n".encode()
    return head + b"%" * max(bytes_min - len(head), 0) + b"\n%%EOF\n"
