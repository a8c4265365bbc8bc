//! Links of proxied pages. A page behind a proxy names paths of its own server; browsers would ask this server for them.
//! So absolute paths in `Location` and in the attributes of HTML get the path of the proxy in front, as kube-apiserver's
//! proxies do it. Pages are rewritten as they stream: a tag is what is kept of them at most.

use std::{
    io::{self, Write},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use flate2::write::{DeflateDecoder, GzDecoder};
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame;

/// Bytes of a tag beyond which it is passed on as it is.
const TAG_BYTES_MAX: usize = 64 << 10;
/// Compressed bytes that are decoded at a time, so that a small body cannot grow to a large one in memory.
const PIECE_BYTES: usize = 1 << 10;

/// Elements whose content is text up to their end tag, whatever it looks like.
const RAW_TEXT: &[&str] = &["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"];
/// Attributes with URLs, by element.
const ATTRIBUTES: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// The two sides of a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Links {
    /// Path of the proxy at this server, without a slash at its end.
    pub(crate) prefix: String,
    /// Host and port of the backend.
    pub(crate) backend: String,
    /// Host and port as which the client knows this server.
    pub(crate) client: String,
}

impl Links {
    /// Rewrites the header `Location`. Returns the decoder of a body whose links are to be rewritten too; `None` for every
    /// other body.
    pub(super) fn rewrite_headers(self, headers: &mut HeaderMap) -> Option<Rewriter> {
        if let Some(location) = headers.get(header::LOCATION) {
            let rewritten = location.to_str().ok().and_then(|location| self.rewritten(location));
            if let Some(value) = rewritten.and_then(|location| HeaderValue::try_from(location).ok()) {
                headers.insert(header::LOCATION, value);
            }
            return None;
        }
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = text(header::CONTENT_TYPE).split(';').next().unwrap_or_default().trim();
        if media_type != "text/html" {
            return None;
        }
        let decoder = match text(header::CONTENT_ENCODING) {
            "" => Decoder::Plain(Vec::new()),
            "gzip" => Decoder::Gzip(GzDecoder::new(Vec::new())),
            "deflate" => Decoder::Deflate(DeflateDecoder::new(Vec::new())),
            // Nothing is known of it.
            _ => return None,
        };
        headers.remove(header::CONTENT_ENCODING);
        headers.remove(header::CONTENT_LENGTH);
        Some(Rewriter { decoder, page: Page { links: self, pending: Vec::new(), state: State::Markup } })
    }

    /// Returns a URL as clients of the proxy need it; `None` if it stays as it is.
    fn rewritten(&self, url: &str) -> Option<String> {
        let (scheme, rest) = match url.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (Some(scheme), rest),
            _ => (None, url),
        };
        let (host, path) = match rest.strip_prefix("//") {
            Some(rest) => {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                let (host, path) = rest.split_at(end);
                (Some(host), path)
            }
            None => (None, rest),
        };
        let is_elsewhere = host.is_some_and(|host| host != self.backend && host != self.client);
        if is_elsewhere || !path.starts_with('/') {
            return None;
        }
        let origin = match (scheme, host) {
            (scheme, Some(host)) if host == self.client => {
                format!("{}//{host}", scheme.map(|scheme| format!("{scheme}:")).unwrap_or_default())
            }
            _ => String::new(),
        };
        let prefix = if path.starts_with(&self.prefix) { "" } else { &self.prefix };
        Some(format!("{origin}{prefix}{path}"))
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|next| next.is_ascii_alphanumeric() || "+-.".contains(next))
}

/// Decodes and rewrites a body.
#[derive(Debug)]
pub(super) struct Rewriter {
    decoder: Decoder,
    page: Page,
}

#[derive(Debug)]
enum Decoder {
    Plain(Vec<u8>),
    Gzip(GzDecoder<Vec<u8>>),
    Deflate(DeflateDecoder<Vec<u8>>),
}

impl Decoder {
    fn decode(&mut self, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let decoded = match self {
            Self::Plain(plain) => {
                plain.extend_from_slice(bytes);
                plain
            }
            Self::Gzip(decoder) => {
                decoder.write_all(bytes)?;
                decoder.get_mut()
            }
            Self::Deflate(decoder) => {
                decoder.write_all(bytes)?;
                decoder.get_mut()
            }
        };
        Ok(std::mem::take(decoded))
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match self {
            Self::Plain(_) => Ok(Vec::new()),
            Self::Gzip(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Self::Deflate(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
        }
    }
}

/// A body whose links are rewritten as it comes.
#[derive(Debug)]
pub(super) struct Rewritten<B> {
    inner: B,
    rewriter: Option<Rewriter>,
    /// Bytes that have come and are not decoded yet.
    input: Bytes,
}

impl<B> Rewritten<B> {
    pub(super) fn new(inner: B, rewriter: Rewriter) -> Self {
        Self { inner, rewriter: Some(rewriter), input: Bytes::new() }
    }
}

impl<B> http_body::Body for Rewritten<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        loop {
            let Some(rewriter) = &mut this.rewriter else { return Poll::Ready(None) };
            let output = if !this.input.is_empty() {
                let piece = this.input.split_to(this.input.len().min(PIECE_BYTES));
                rewriter.decoder.decode(&piece).map(|decoded| rewriter.page.feed(&decoded))
            } else {
                match std::task::ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                    Some(Ok(frame)) => {
                        this.input = frame.into_data().unwrap_or_default();
                        continue;
                    }
                    Some(Err(error)) => Err(io::Error::other(error)),
                    None => {
                        let last = rewriter.decoder.finish().map(|decoded| {
                            let mut output = rewriter.page.feed(&decoded);
                            output.append(&mut rewriter.page.pending);
                            output
                        });
                        this.rewriter = None;
                        last
                    }
                }
            };
            match output {
                Ok(output) if output.is_empty() && this.rewriter.is_some() => {}
                Ok(output) => return Poll::Ready(Some(Ok(Frame::data(output.into())))),
                Err(error) => {
                    this.rewriter = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
    }
}

/// A page of HTML as it is read.
#[derive(Debug)]
struct Page {
    links: Links,
    /// Bytes that may be the beginning of a tag.
    pending: Vec<u8>,
    state: State,
}

/// Place in a page.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Text and tags.
    Markup,
    /// Within a comment.
    Comment,
    /// Within an element whose content is text.
    RawText(&'static str),
}

impl Page {
    /// Takes the next bytes of the page. Returns what is complete, rewritten.
    fn feed(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let (mut rest, mut output) = (&pending[..], Vec::with_capacity(pending.len()));
        while !rest.is_empty() {
            let taken = match self.state {
                State::Markup => self.markup(rest, &mut output),
                State::Comment => self.until(b"-->", rest, &mut output),
                State::RawText(name) => self.until(format!("</{name}").as_bytes(), rest, &mut output),
            };
            if taken == 0 {
                break;
            }
            rest.advance(taken);
        }
        if rest.len() > TAG_BYTES_MAX {
            output.extend_from_slice(rest);
            rest = &[];
        }
        self.pending = rest.to_vec();
        output
    }

    /// Passes bytes on up to a text that ends the present state. Returns the number of bytes, 0 if more are needed.
    fn until(&mut self, end: &[u8], rest: &[u8], output: &mut Vec<u8>) -> usize {
        let found = rest.windows(end.len()).position(|window| window.eq_ignore_ascii_case(end));
        let taken = match found {
            Some(position) => {
                self.state = State::Markup;
                // An end tag is markup itself.
                if end == b"-->" { position + end.len() } else { position }
            }
            None => (rest.len() + 1).saturating_sub(end.len()),
        };
        output.extend_from_slice(&rest[..taken]);
        // The state has changed, which is progress too.
        if found == Some(0) && taken == 0 { self.markup(rest, output) } else { taken }
    }

    /// Passes text on up to a tag, or a tag. Returns the number of bytes, 0 if more are needed.
    fn markup(&mut self, rest: &[u8], output: &mut Vec<u8>) -> usize {
        let start = rest.iter().position(|byte| *byte == b'<').unwrap_or(rest.len());
        if start > 0 {
            output.extend_from_slice(&rest[..start]);
            return start;
        }
        if rest.starts_with(b"<!--") {
            self.state = State::Comment;
            output.extend_from_slice(b"<!--");
            return 4;
        }
        let is_open = b"<!--".starts_with(rest);
        match rest.get(1) {
            Some(first) if first.is_ascii_alphabetic() => {
                let Some(tag) = Tag::parse(rest) else { return 0 };
                self.rewrite(&tag, rest, output);
                if let Some(name) = RAW_TEXT.iter().find(|name| tag.is(rest, name)) {
                    self.state = State::RawText(name);
                }
                tag.length
            }
            _ if is_open => 0,
            _ => {
                output.push(b'<');
                1
            }
        }
    }

    /// Writes a tag with its URLs rewritten.
    fn rewrite(&self, tag: &Tag, rest: &[u8], output: &mut Vec<u8>) {
        let known = ATTRIBUTES.iter().find(|(name, _)| tag.is(rest, name));
        let mut written = 0;
        for (name, value) in known.map_or(&[][..], |_| &tag.attributes) {
            let name = &rest[name.clone()];
            let is_url = known.is_some_and(|(_, all)| all.iter().any(|url| same(name, url)));
            let text = std::str::from_utf8(&rest[value.clone()]).ok().filter(|_| is_url);
            if let Some(rewritten) = text.and_then(|url| self.links.rewritten(url)) {
                output.extend_from_slice(&rest[written..value.start]);
                output.extend_from_slice(rewritten.as_bytes());
                written = value.end;
            }
        }
        output.extend_from_slice(&rest[written..tag.length]);
    }
}

fn same(name: &[u8], known: &str) -> bool {
    name.eq_ignore_ascii_case(known.as_bytes())
}

/// Places in the text of a start tag.
#[derive(Debug, PartialEq, Eq)]
struct Tag {
    name_end: usize,
    /// Names and values, without quotes.
    attributes: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>,
    length: usize,
}

impl Tag {
    fn is(&self, text: &[u8], name: &str) -> bool {
        same(&text[1..self.name_end], name)
    }

    /// Parses a start tag. `None` if its end has not come yet.
    fn parse(text: &[u8]) -> Option<Self> {
        let end_of = |from: usize, stops: &dyn Fn(u8) -> bool| {
            text[from..].iter().position(|byte| stops(*byte)).map(|length| from + length)
        };
        let is_gap = |byte: u8| byte.is_ascii_whitespace() || byte == b'/';
        let name_end = end_of(1, &|byte| is_gap(byte) || byte == b'>')?;
        let (mut at, mut attributes) = (name_end, Vec::new());
        loop {
            at = end_of(at, &|byte| !is_gap(byte))?;
            if text[at] == b'>' {
                return Some(Self { name_end, attributes, length: at + 1 });
            }
            // A name may begin with `=`.
            let name = at..end_of(at + 1, &|byte| is_gap(byte) || byte == b'>' || byte == b'=')?;
            at = end_of(name.end, &|byte| !byte.is_ascii_whitespace())?;
            if text[at] != b'=' {
                continue;
            }
            at = end_of(at + 1, &|byte| !byte.is_ascii_whitespace())?;
            let value = match text[at] {
                quote @ (b'"' | b'\'') => at + 1..end_of(at + 1, &|byte| byte == quote)?,
                _ => at..end_of(at, &|byte| byte.is_ascii_whitespace() || byte == b'>')?,
            };
            at = value.end + usize::from(value.start > 0 && matches!(text[value.start - 1], b'"' | b'\''));
            attributes.push((name, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    fn links() -> Links {
        Links {
            prefix: "/api/v1/namespaces/default/pods/p/proxy".to_owned(),
            backend: "127.64.0.2:80".to_owned(),
            client: "localhost:8001".to_owned(),
        }
    }

    fn rewritten(url: &str) -> String {
        let rewritten = links().rewritten(url).unwrap_or_else(|| url.to_owned());
        rewritten.replace("/api/v1/namespaces/default/pods/p/proxy", "P")
    }

    #[test]
    fn urls_of_the_backend_go_through_the_proxy() {
        for (url, expected) in [
            ("/", "P/"),
            ("/a/b?c=/d#e", "P/a/b?c=/d#e"),
            ("http://127.64.0.2:80/a", "P/a"),
            ("//127.64.0.2:80/a", "P/a"),
            ("http://localhost:8001/a", "http://localhost:8001P/a"),
            ("/api/v1/namespaces/default/pods/p/proxy/a", "P/a"),
            ("a/b", "a/b"),
            ("", ""),
            ("#top", "#top"),
            ("https://example.org/a", "https://example.org/a"),
            ("//example.org/a", "//example.org/a"),
            ("mailto:a@example.org", "mailto:a@example.org"),
            ("javascript:go('/a')", "javascript:go('/a')"),
        ] {
            assert_eq!(rewritten(url), expected, "{url}");
        }
    }

    async fn page(encoding: &str, body: Vec<u8>, piece: usize) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
        if !encoding.is_empty() {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_str(encoding).unwrap());
        }
        let rewriter = links().rewrite_headers(&mut headers).unwrap();
        assert_eq!(headers.get(header::CONTENT_ENCODING), None);
        let frames: Vec<_> = body
            .chunks(piece)
            .map(|chunk| Ok::<_, io::Error>(Frame::data(Bytes::copy_from_slice(chunk))))
            .collect();
        let body = Rewritten::new(StreamBody::new(futures_util::stream::iter(frames)), rewriter);
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        text.replace("/api/v1/namespaces/default/pods/p/proxy", "P")
    }

    const PAGE: &str = "<!DOCTYPE html><HTML manifest=/m><title>1 < 2 <a href='/t'></title>\n\
        <!-- <a href=\"/c\"> --><a class=x HREF = '/a?b=1&amp;c=2' >a</a><img src=/i.png alt=\"/x\"/>\
        <script src=\"/s.js\">if (a<b) document.write('<a href=\"/d\">')</SCRIPT><p title=\"/p\">3 < 4</p>\
        <form action=\"post\"><a href=\"https://example.org/\">";
    const REWRITTEN: &str = "<!DOCTYPE html><HTML manifest=P/m><title>1 < 2 <a href='/t'></title>\n\
        <!-- <a href=\"/c\"> --><a class=x HREF = 'P/a?b=1&amp;c=2' >a</a><img src=P/i.png alt=\"/x\"/>\
        <script src=\"P/s.js\">if (a<b) document.write('<a href=\"/d\">')</SCRIPT><p title=\"/p\">3 < 4</p>\
        <form action=\"post\"><a href=\"https://example.org/\">";

    #[tokio::test]
    async fn only_urls_of_a_page_change_however_it_is_cut() {
        for piece in 1..40 {
            assert_eq!(page("", PAGE.into(), piece).await, REWRITTEN, "in pieces of {piece} bytes");
        }
        assert_eq!(page("", b"<a href=\"/cut".to_vec(), 5).await, "<a href=\"/cut");
        let long = format!("<a {}", "x".repeat(2 * TAG_BYTES_MAX));
        assert_eq!(page("", long.clone().into(), 1000).await, long);
    }

    #[tokio::test]
    async fn compressed_pages_are_decoded() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(PAGE.as_bytes()).unwrap();
        assert_eq!(page("gzip", gzip.finish().unwrap(), 7).await, REWRITTEN);
        let mut deflate = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        deflate.write_all(PAGE.as_bytes()).unwrap();
        assert_eq!(page("deflate", deflate.finish().unwrap(), 1000).await, REWRITTEN);
    }

    #[test]
    fn location_is_rewritten_and_other_content_is_left_alone() {
        let mut headers = HeaderMap::new();
        headers.insert(header::LOCATION, HeaderValue::from_static("/login"));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html"));
        assert!(links().rewrite_headers(&mut headers).is_none());
        assert_eq!(headers[header::LOCATION], "/api/v1/namespaces/default/pods/p/proxy/login");
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        assert!(links().rewrite_headers(&mut headers).is_none());
    }
}
