//! Bodies of answers, and their lines as they arrive.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use futures_util::{Stream, stream};
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};

use crate::error::{BoxError, Error, Result};

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Longest line. The largest objects of Kubernetes are a few MiB.
const LINE_BYTES_MAX: usize = 64 << 20;

/// The lines of a body.
pub(crate) struct Lines {
    body: Body,
    /// Bytes of the next lines that have arrived.
    buffer: BytesMut,
    /// Bytes of the buffer that are known to hold no end of a line.
    searched: usize,
    ended: bool,
}

impl Lines {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), searched: 0, ended: false }
    }

    /// Returns the lines. A line that breaks off is dropped: the watch resumes where it was.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Bytes>> + Send {
        stream::unfold(self, |mut lines| async move { lines.next().await.map(|line| (line, lines)) })
    }

    async fn next(&mut self) -> Option<Result<Bytes>> {
        while !self.ended {
            let end = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n');
            if let Some(end) = end {
                let line = self.buffer.split_to(self.searched + end).freeze();
                self.buffer.advance(1);
                self.searched = 0;
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Some(Ok(line));
            }
            self.searched = self.buffer.len();
            if self.searched > LINE_BYTES_MAX {
                self.ended = true;
                return Some(Err(Error::EventTooLarge(LINE_BYTES_MAX)));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    return (!is_end(&error)).then_some(Err(Error::ReadBody(error)));
                }
                None => self.ended = true,
            }
        }
        None
    }
}

/// Returns whether a connection ended without saying so, as that of a server that stops.
fn is_end(error: &BoxError) -> bool {
    let first: &(dyn std::error::Error + 'static) = &**error;
    std::iter::successors(Some(first), |error| error.source()).any(|error| {
        let io = error.downcast_ref::<io::Error>();
        let http = error.downcast_ref::<hyper::Error>();
        io.is_some_and(|error| error.kind() == io::ErrorKind::UnexpectedEof)
            || http.is_some_and(hyper::Error::is_incomplete_message)
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use bytes::Bytes;
    use futures_util::{StreamExt, stream};
    use http_body::Frame;
    use http_body_util::{StreamBody, combinators::UnsyncBoxBody};

    use super::Lines;
    use crate::error::BoxError;

    async fn lines(parts: Vec<Result<&'static str, io::ErrorKind>>) -> Vec<Result<String, String>> {
        let frames = parts.into_iter().map(|part| match part {
            Ok(text) => Ok(Frame::data(Bytes::from(text))),
            Err(kind) => Err(BoxError::from(io::Error::from(kind))),
        });
        let body = UnsyncBoxBody::new(StreamBody::new(stream::iter(frames)));
        let lines = Lines::new(body).into_stream();
        let text = |line: Bytes| String::from_utf8(line.to_vec()).unwrap();
        lines.map(|line| line.map(text).map_err(|error| error.to_string())).collect().await
    }

    #[tokio::test]
    async fn lines_are_found_across_frames_and_several_in_one() {
        let found = lines(vec![Ok("on"), Ok("e\ntwo\n\nth"), Ok("ree"), Ok("\n")]).await;
        assert_eq!(found, [Ok("one".to_owned()), Ok("two".to_owned()), Ok("three".to_owned())]);
    }

    #[tokio::test]
    async fn line_that_breaks_off_is_dropped() {
        assert_eq!(lines(vec![Ok("one\ntw")]).await, [Ok("one".to_owned())]);
        let found = lines(vec![Ok("one\ntw"), Err(io::ErrorKind::UnexpectedEof)]).await;
        assert_eq!(found, [Ok("one".to_owned())]);
    }

    #[tokio::test]
    async fn other_failure_of_a_connection_is_reported_once() {
        let found = lines(vec![Err(io::ErrorKind::ConnectionReset), Ok("late\n")]).await;
        assert_eq!(found.len(), 1);
        assert!(found[0].is_err());
    }
}
