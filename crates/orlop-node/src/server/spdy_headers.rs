//! Header blocks of SPDY/3.1.

use std::{collections::HashMap, io};

use bytes::{Buf, BufMut};
use miniz_oxide::inflate::{
    TINFLStatus,
    core::{DecompressorOxide, decompress, inflate_flags},
};

/// Headers of a stream. Names are in lower case.
pub(super) type Headers = HashMap<String, String>;

/// Size of the inflater's window.
const WINDOW: usize = 32 << 10;
/// Bytes of a header block.
const BLOCK_BYTES_MAX: usize = 16 << 10;
/// Headers of a block.
const HEADERS_MAX: u32 = 100;
/// Flag of a zlib stream that begins with a dictionary's checksum.
const PRESET_DICTIONARY: u8 = 0x20;

/// Names that every SPDY/3 header block refers to, with their lengths, and common values at the end.
const NAMES: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-\
Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not \
Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov \
Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,\
application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-\
8859-1,utf-,*,enq=0.";

/// Returns the dictionary of SPDY/3.
fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for name in NAMES {
        dictionary.put_u32(u32::try_from(name.len()).unwrap_or_default());
        dictionary.put_slice(name.as_bytes());
    }
    dictionary.put_slice(TEXT.as_bytes());
    dictionary
}

/// Inflater of a connection's header blocks, which share one compressed stream.
pub(super) struct Inflater {
    decompressor: Box<DecompressorOxide>,
    window: Vec<u8>,
    position: usize,
    is_first: bool,
}

impl Default for Inflater {
    fn default() -> Self {
        let mut window = vec![0; WINDOW];
        let dictionary = dictionary();
        window[..dictionary.len()].copy_from_slice(&dictionary);
        Self { decompressor: Box::default(), window, position: dictionary.len(), is_first: true }
    }
}

impl std::fmt::Debug for Inflater {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inflater").field("position", &self.position).finish_non_exhaustive()
    }
}

impl Inflater {
    /// Returns the headers of the next block.
    pub(super) fn headers(&mut self, mut block: &[u8]) -> io::Result<Headers> {
        let malformed = || io::Error::other("malformed header block");
        if std::mem::replace(&mut self.is_first, false) {
            // The header of zlib, and the checksum of the dictionary.
            let flags = *block.get(1).ok_or_else(malformed)?;
            let length = if flags & PRESET_DICTIONARY != 0 { 6 } else { 2 };
            block = block.get(length..).ok_or_else(malformed)?;
        }
        let mut output = Vec::new();
        loop {
            let flags = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
            let (status, read, written) =
                decompress(&mut self.decompressor, block, &mut self.window, self.position, flags);
            output.extend(&self.window[self.position..self.position + written]);
            self.position = (self.position + written) % WINDOW;
            block = &block[read..];
            if output.len() > BLOCK_BYTES_MAX {
                return Err(io::Error::other("header block too long"));
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput if block.is_empty() => break,
                TINFLStatus::NeedsMoreInput => {}
                _ => return Err(malformed()),
            }
        }
        parse(&output).ok_or_else(malformed)
    }
}

fn parse(mut block: &[u8]) -> Option<Headers> {
    fn text(block: &mut &[u8]) -> Option<String> {
        let length = block.try_get_u32().ok()? as usize;
        let (text, rest) = block.split_at_checked(length)?;
        *block = rest;
        Some(String::from_utf8_lossy(text).into_owned())
    }
    let count = block.try_get_u32().ok()?;
    if count > HEADERS_MAX {
        return None;
    }
    let mut headers = Headers::new();
    for _ in 0..count {
        let (name, value) = (text(&mut block)?, text(&mut block)?);
        headers.insert(name.to_lowercase(), value);
    }
    Some(headers)
}

/// Returns a block without headers, in a stored block of the connection's compressed stream.
pub(super) fn encode(is_first: bool) -> Vec<u8> {
    let mut block = Vec::new();
    if is_first {
        // zlib's header: 32 KiB window, no dictionary.
        block.extend([0x78, 0x01]);
    }
    // The number of headers, then an empty block, at which an inflater hands out what it has.
    for content in [&0_u32.to_be_bytes()[..], &[]] {
        let length = u16::try_from(content.len()).unwrap_or_default();
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(content);
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionary_is_that_of_spdy_3() {
        // Checksum of the dictionary, which every compressed stream names.
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!(b << 16 | a, 0xe3c6_a7c2);
    }

    #[test]
    fn blocks_share_one_compressed_stream() {
        // As zlib writes them, with the dictionary.
        let first = [
            0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0x25, 0x3a, 0x48, 0xf9, 0x5b, 0x04, 0x4e, 0xea, 0x16,
            0x06, 0x16, 0x06, 0x40, 0x9a, 0xb3, 0x08, 0x12, 0x5f, 0x99, 0xa0, 0x74, 0xcc, 0x68, 0x00, 0x4e,
            0x89, 0x25, 0x45, 0xa9, 0x89, 0xb9, 0xd0, 0xc2, 0x86, 0x35, 0x15, 0x14, 0x15, 0x00, 0x00, 0x00,
            0x00, 0xff, 0xff,
        ];
        let second = [0x22, 0x53, 0x33, 0xa8, 0xa4, 0x4a, 0x04, 0x00, 0x00, 0x00, 0xff, 0xff];
        let mut inflater = Inflater::default();
        for (block, kind) in [(&first[..], "error"), (&second[..], "data")] {
            let headers = inflater.headers(block).unwrap();
            assert_eq!((headers["port"].as_str(), headers["streamtype"].as_str()), ("8080", kind));
        }
    }

    #[test]
    fn blocks_without_compression_are_read() {
        let mut block = Vec::new();
        block.put_u32(1);
        for text in ["Port", "80"] {
            block.put_u32(u32::try_from(text.len()).unwrap());
            block.put_slice(text.as_bytes());
        }
        let length = u16::try_from(block.len()).unwrap();
        let mut stored = vec![0x78, 0x01, 0];
        stored.extend(length.to_le_bytes());
        stored.extend((!length).to_le_bytes());
        stored.extend(&block);
        let mut inflater = Inflater::default();
        assert_eq!(inflater.headers(&stored).unwrap()["port"], "80");
        // The next block continues the same compressed stream.
        assert_eq!(inflater.headers(&stored[2..]).unwrap()["port"], "80");
        assert!(inflater.headers(&[0xff, 0xff, 0xff]).is_err());
    }
}
