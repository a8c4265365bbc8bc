//! Gzip compression of long responses, for clients that accept it, as in Kubernetes.
//!
//! A body is compressed while it is sent, a slice at a time: memory does not grow with its length or with
//! a slow client, and a long body does not monopolize a worker thread.

use std::{
    io::Write,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body as _, Frame};

use super::body::{Body, BodyWrapper, PolledFrame};

/// Shorter responses are not compressed: it costs more than it saves.
const LENGTH_MIN: u64 = 128 << 10;
/// Bytes that are compressed before the task yields.
const SLICE: usize = 64 << 10;
/// Bytes of compressed data at which a frame is sent.
const FRAME: usize = 16 << 10;

/// Compresses a response if it is long and its client accepts gzip. Must not be used for watches: their
/// events would be buffered.
pub(crate) fn compress(response: Response<Body>, request: &HeaderMap) -> Response<Body> {
    let long = response.body().exact_length().is_none_or(|length| length >= LENGTH_MIN);
    let unencoded =
        response.status().is_success() && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !long || !unencoded || !accepts_gzip(request) {
        return response;
    }
    let mut response = response.map(|body| Body::Wrapped(Box::new(Gzip::new(body))));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn accepts_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|clause| {
        let (name, quality) = clause.split_once(';').unwrap_or((clause, ""));
        name.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// A body that is compressed while it is sent.
#[derive(Debug)]
struct Gzip {
    body: Body,
    /// Received and not yet compressed.
    input: Bytes,
    /// `None` after the last frame.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    fn new(body: Body) -> Self {
        // The fastest level: higher ones save little on JSON and cost much more.
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self { body, input: Bytes::new(), encoder: Some(encoder) }
    }
}

impl BodyWrapper for Gzip {
    fn inner_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            if encoder.get_ref().len() >= FRAME {
                let compressed = std::mem::take(encoder.get_mut());
                return Poll::Ready(Some(Ok(Frame::data(compressed.into()))));
            }
            if self.input.is_empty() {
                match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => self.input = frame.into_data().unwrap_or_default(),
                    Some(Err(aborted)) => return Poll::Ready(Some(Err(aborted))),
                    None => {
                        // Writing into memory does not fail.
                        let rest = self.encoder.take().and_then(|encoder| encoder.finish().ok());
                        return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest.into()))));
                    }
                }
            }
            let slice = self.input.len().min(SLICE);
            let written = encoder.write_all(&self.input[..slice]);
            debug_assert!(written.is_ok(), "writing into memory does not fail");
            self.input.advance(slice);
            if !self.input.is_empty() && encoder.get_ref().len() < FRAME {
                // Yields between slices.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use http_body_util::BodyExt;

    use super::*;

    fn accepting(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
        headers
    }

    #[tokio::test]
    async fn long_responses_are_compressed_for_clients_that_accept_gzip() {
        let text: String = (0..40_000).map(|number| format!("{number} ")).collect();
        let response = compress(Response::new(Body::from(text.clone())), &accepting("deflate, gzip;q=0.8"));
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(response.headers()[header::VARY], "Accept-Encoding");
        let compressed = response.into_body().collect().await.unwrap().to_bytes();
        assert!(compressed.len() < text.len() / 2, "{}", compressed.len());
        let mut back = String::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_string(&mut back).unwrap();
        assert!(back == text);
    }

    #[test]
    fn short_or_encoded_responses_are_not_compressed() {
        let long = || Response::new(Body::from(vec![0; 200 << 10]));
        for asked in ["", "identity", "br", "gzip;q=0"] {
            assert!(compress(long(), &accepting(asked)).headers().is_empty(), "{asked}");
        }
        assert!(compress(Response::new(Body::from("short")), &accepting("gzip")).headers().is_empty());
        let mut encoded = long();
        encoded.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
        assert_eq!(compress(encoded, &accepting("gzip")).headers()[header::CONTENT_ENCODING], "br");
    }
}
