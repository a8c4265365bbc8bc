//! Compression of answers: gzip, where the client takes it and the answer is long, as Kubernetes does.
//!
//! A body is compressed as it is sent, a slice at a time, so that neither its length nor a slow client
//! costs memory, and a long one does not keep a thread from others.

use std::{
    io::Write,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use flate2::{Compression, write::GzEncoder};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::{Body as _, Frame};

use crate::body::{Body, Broken};

/// Answers shorter than this are sent as they are: compressing them costs more than it saves.
const WORTH_IT: u64 = 128 << 10;
/// Bytes that are compressed before others get their turn.
const SLICE: usize = 64 << 10;
/// Bytes of compressed data worth a frame.
const FRAME: usize = 16 << 10;

/// Compresses a response if its client takes that and it is worth it. Watches must not come here: their
/// events would wait for one another.
pub(crate) fn compress(response: Response<Body>, request: &HeaderMap) -> Response<Body> {
    let long = response.body().length().is_none_or(|length| length >= WORTH_IT);
    let fresh = response.status().is_success() && !response.headers().contains_key(header::CONTENT_ENCODING);
    if !long || !fresh || !takes_gzip(request) {
        return response;
    }
    let mut response = response.map(|body| Body::Gzip(Box::new(Gzip::new(body))));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.append(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn takes_gzip(request: &HeaderMap) -> bool {
    let accepted = request.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|clause| {
        let (name, quality) = clause.split_once(';').unwrap_or((clause, ""));
        name.trim() == "gzip" && !matches!(quality.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")
    })
}

/// A body, being compressed.
#[derive(Debug)]
pub struct Gzip {
    body: Body,
    /// What has come of the body and is not compressed yet.
    waiting: Bytes,
    /// `None` once everything has been handed over.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl Gzip {
    fn new(body: Body) -> Self {
        // The fastest level: others save little more of JSON and cost much more.
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self { body, waiting: Bytes::new(), encoder: Some(encoder) }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            if encoder.get_ref().len() >= FRAME {
                let compressed = std::mem::take(encoder.get_mut());
                return Poll::Ready(Some(Ok(Frame::data(compressed.into()))));
            }
            if self.waiting.is_empty() {
                match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => self.waiting = frame.into_data().unwrap_or_default(),
                    Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                    None => {
                        // Writing into memory does not fail.
                        let rest = self.encoder.take().and_then(|encoder| encoder.finish().ok());
                        return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest.into()))));
                    }
                }
            }
            let slice = self.waiting.len().min(SLICE);
            let written = encoder.write_all(&self.waiting[..slice]);
            debug_assert!(written.is_ok(), "writing into memory does not fail");
            self.waiting.advance(slice);
            if !self.waiting.is_empty() && encoder.get_ref().len() < FRAME {
                // Others get their turn between slices.
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

    fn asking(accept: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
        headers
    }

    #[tokio::test]
    async fn long_answers_are_compressed_for_those_who_ask() {
        let text: String = (0..40_000).map(|number| format!("{number} ")).collect();
        let response = compress(Response::new(Body::from(text.clone())), &asking("deflate, gzip;q=0.8"));
        assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
        assert_eq!(response.headers()[header::VARY], "Accept-Encoding");
        let compressed = response.into_body().collect().await.unwrap().to_bytes();
        assert!(compressed.len() < text.len() / 2, "{}", compressed.len());
        let mut back = String::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_string(&mut back).unwrap();
        assert!(back == text);
    }

    #[test]
    fn short_answers_and_those_of_others_are_left_alone() {
        let long = || Response::new(Body::from(vec![0; 200 << 10]));
        for asked in ["", "identity", "br", "gzip;q=0"] {
            assert!(compress(long(), &asking(asked)).headers().is_empty(), "{asked}");
        }
        assert!(compress(Response::new(Body::from("short")), &asking("gzip")).headers().is_empty());
        let mut encoded = long();
        encoded.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("br"));
        assert_eq!(compress(encoded, &asking("gzip")).headers()[header::CONTENT_ENCODING], "br");
    }
}
