//! HTTP/2 frames and gRPC messages, for clients that no library offers: ones of almost no cost, and ones that
//! violate the protocol.

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GO_AWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// First byte of the header block of a 200 response.
pub const OK: u8 = 0x88;
/// Error code of a stream that the server refused.
pub const REFUSED_STREAM: u32 = 7;
/// Initial flow-control window.
pub const WINDOW: u32 = 65_535;
/// Prefix of a gRPC message: a compression flag and four bytes of length.
pub const MESSAGE_PREFIX: usize = 5;

/// Frame header: length, type, flags and stream.
pub const FRAME_PREFIX: usize = 9;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;
const WINDOW_MAX: u32 = i32::MAX as u32;

/// A received frame.
#[derive(Debug)]
pub struct Frame<'a> {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses the first frame, if it is complete.
    pub fn first(input: &'a [u8]) -> Option<Self> {
        let ([a, b, c, kind, flags, stream @ ..], rest) = input.split_first_chunk::<FRAME_PREFIX>()?;
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let stream = u32::from_be_bytes(*stream) & WINDOW_MAX;
        Some(Self { kind: *kind, flags: *flags, stream, payload: rest.get(..length)? })
    }

    /// Returns its length on the wire.
    pub fn size(&self) -> usize {
        FRAME_PREFIX + self.payload.len()
    }

    /// Returns the 32-bit number at the start of the payload.
    pub fn number(&self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.payload.first_chunk()?))
    }
}

/// Appends a frame. Payloads are smaller than the smallest SETTINGS_MAX_FRAME_SIZE.
pub fn put_frame(output: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    output.extend_from_slice(&length);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(payload);
}

/// Returns the connection preface: no server push, and large windows.
pub fn opening() -> Vec<u8> {
    let mut output = PREFACE.to_vec();
    let mut settings = Vec::new();
    for (name, value) in [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX)] {
        settings.extend_from_slice(&name.to_be_bytes());
        settings.extend_from_slice(&value.to_be_bytes());
    }
    put_frame(&mut output, SETTINGS, 0, 0, &settings);
    put_frame(&mut output, WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - WINDOW).to_be_bytes());
    output
}

/// Returns the header block of a connection's first call. Fields outside the static table enter the dynamic table.
pub fn first_header_fields(path: &str, authority: &str) -> Vec<u8> {
    // POST and http as indexed fields; path and authority with indexed names.
    let mut fields = vec![0x83, 0x86, 0x44];
    put_text(&mut fields, path);
    fields.push(0x41);
    put_text(&mut fields, authority);
    fields.push(0x40);
    put_text(&mut fields, "te");
    put_text(&mut fields, "trailers");
    fields.push(0x40 | 31);
    put_text(&mut fields, "application/grpc");
    fields
}

/// The same fields by their indices in the dynamic table, the newest first.
pub const HEADER_FIELDS: [u8; 6] = [0x83, 0x86, 0x80 | 65, 0x80 | 64, 0x80 | 63, 0x80 | 62];

/// Returns the header block of a GET. Nothing enters the dynamic table.
pub fn get_fields(scheme: &str, path: &str, authority: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let own = [(":method", "GET"), (":scheme", scheme), (":path", path), (":authority", authority)];
    let mut fields = Vec::new();
    for (name, value) in own.iter().chain(others) {
        put_field(&mut fields, name, value);
    }
    fields
}

/// Appends a literal header field without indexing.
pub fn put_field(fields: &mut Vec<u8>, name: &str, value: &str) {
    fields.push(0);
    put_text(fields, name);
    put_text(fields, value);
}

/// Appends a string literal shorter than 127 bytes, without Huffman coding.
fn put_text(fields: &mut Vec<u8>, text: &str) {
    fields.push(text.len() as u8);
    fields.extend_from_slice(text.as_bytes());
}

/// Returns SETTINGS_INITIAL_WINDOW_SIZE of a server's settings, if set.
pub fn initial_window(settings: &[u8]) -> Option<u32> {
    let (settings, _) = settings.as_chunks::<6>();
    settings.iter().find_map(|[name @ .., a, b, c, d]| {
        (u16::from_be_bytes(*name) == INITIAL_WINDOW_SIZE).then(|| u32::from_be_bytes([*a, *b, *c, *d]))
    })
}

/// Returns the gRPC message in received data, if it is complete.
pub fn message(answer: &[u8]) -> Option<&[u8]> {
    let ([_, length @ ..], rest) = answer.split_first_chunk::<MESSAGE_PREFIX>()?;
    rest.get(..u32::from_be_bytes(*length) as usize)
}

/// A client on a blocking socket that sends only what the test says: it acknowledges no ping.
#[derive(Debug)]
pub struct Peer<S> {
    socket: S,
    input: Vec<u8>,
}

impl<S: std::io::Read + std::io::Write> Peer<S> {
    /// Connects: sends the preface and waits for the settings.
    pub fn new(mut socket: S) -> std::io::Result<Self> {
        let mut hello = opening();
        put_frame(&mut hello, SETTINGS, ACK, 0, &[]);
        socket.write_all(&hello)?;
        Ok(Self { socket, input: Vec::new() })
    }

    /// Sends a frame.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        let mut output = Vec::new();
        put_frame(&mut output, kind, flags, stream, payload);
        self.socket.write_all(&output)
    }

    /// Opens streams of calls to a path, without ever sending their messages.
    pub fn open(&mut self, path: &str, streams: u32) -> std::io::Result<()> {
        let mut output = Vec::new();
        for n in 0..streams {
            let fields = if n == 0 { first_header_fields(path, "test") } else { HEADER_FIELDS.to_vec() };
            put_frame(&mut output, HEADERS, END_HEADERS, 2 * n + 1, &fields);
        }
        self.socket.write_all(&output)
    }

    /// Reads frames until `wanted` returns true. Returns `false` if the server closed the connection before.
    pub fn until(&mut self, mut wanted: impl FnMut(&Frame<'_>) -> bool) -> std::io::Result<bool> {
        loop {
            while let Some(frame) = Frame::first(&self.input) {
                let (found, size) = (wanted(&frame), frame.size());
                self.input.drain(..size);
                if found {
                    return Ok(true);
                }
            }
            let mut more = [0; 4096];
            match self.socket.read(&mut more) {
                Ok(0) => return Ok(false),
                Ok(read) => self.input.extend_from_slice(&more[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
