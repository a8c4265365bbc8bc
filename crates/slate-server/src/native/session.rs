//! The state of a connection, and the order of its requests.

use std::time::{Duration, Instant};

use aws_lc_rs::constant_time;
use slate::PreparedLookup;
use slate_client::protocol::{self, ErrorCode, Found, LookUp, Request, Response, VERSION};

use super::{
    execute::{Outcome, execute, try_execute},
    frames::{Frames, decode},
    point::{self, POINT_WRITE_LEN_MAX, Point},
    translate,
};
use crate::{connection::UNAUTHENTICATED_LEN_MAX, context::SharedContext, metrics::RequestLabels};

/// Bytes of responses after which they are sent before more requests run.
const OUTPUT_BYTES: usize = 4 << 20;

/// Time that a connection may run writes inline before it yields.
const TIME_SLICE: Duration = Duration::from_micros(500);

/// A connection's session.
#[derive(Debug, Clone)]
pub(super) struct Session {
    context: SharedContext,
    authenticated: bool,
    refused: bool,
    /// Prepared look-up of the collection that was read last.
    lookup: Option<PreparedLookup>,
}

impl Session {
    pub(super) fn new(context: SharedContext) -> Self {
        Self { authenticated: context.token.is_none(), refused: false, lookup: None, context }
    }

    /// Returns true if a wrong token was presented, after which the connection ends.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Returns true if point requests need not leave the connection's task.
    pub(super) fn reads_without_blocking(&self) -> bool {
        self.context.engine.reads_without_blocking()
    }

    /// Returns the largest frame that the client may send.
    pub(super) fn frame_len_max(&self) -> usize {
        let max = self.context.limits.message_len_max;
        if self.authenticated { max } else { max.min(UNAUTHENTICATED_LEN_MAX) }
    }

    /// Runs point requests in order and encodes the responses, up to the first request that may have to wait, or to the
    /// end of the connection's time slice.
    pub(super) fn run_inline(&mut self, frames: &mut Frames) -> Vec<u8> {
        let mut output = Output::default();
        if !self.authenticated {
            return output.bytes;
        }
        let began = Instant::now();
        while output.bytes.len() < OUTPUT_BYTES
            && let Some(point) = frames.first().and_then(Point::decode)
        {
            match point {
                Point::Ping => self.append(("ping", Response::Ok), &mut output),
                Point::LookUp { collection, id } => self.look_up(collection, id, &mut output),
                Point::Write(request) => {
                    let name = name_of(&request);
                    let is_small_write = self.is_small_write(&request);
                    let Some(response) =
                        is_small_write.then(|| try_execute(&self.context, request)).flatten()
                    else {
                        break;
                    };
                    self.append((name, response), &mut output);
                    if began.elapsed() > TIME_SLICE {
                        frames.pop();
                        break;
                    }
                }
            }
            frames.pop();
        }
        if !output.bytes.is_empty() {
            output.count(&self.context, None);
            self.context.metrics.seconds.observe(began.elapsed().as_secs_f64());
        }
        output.bytes
    }

    /// Returns true if the document that a point write changes is small. It may grow before the write, by as much as
    /// another request brings.
    fn is_small_write(&mut self, request: &Request) -> bool {
        let Some((collection, id)) = point::target(request) else { return true };
        let length =
            self.prepared(collection).and_then(|lookup| lookup.get_raw(id, |found| found.as_bytes().len()));
        !matches!(length, Ok(Some(length)) if length > POINT_WRITE_LEN_MAX)
    }

    /// Runs requests in order and encodes the responses, until they fill an output.
    ///
    /// Consecutive writes are submitted together, so that they share a commit; a read waits for the writes
    /// before it.
    pub(super) fn run(&mut self, frames: &mut Frames) -> Vec<u8> {
        let began = Instant::now();
        let mut output = Output::default();
        let mut pending: Vec<(&'static str, Outcome)> = Vec::new();
        while output.bytes.len() < OUTPUT_BYTES
            && let Some(message) = frames.first()
        {
            if let Some(LookUp::FindById { collection, id }) = LookUp::decode(message)
                && self.authenticated
            {
                self.finish(&mut pending, &mut output);
                self.look_up(collection, id, &mut output);
                frames.pop();
                continue;
            }
            let (name, outcome) = match decode(message) {
                Err(response) => ("invalid", Outcome::Ready(response)),
                Ok(request) => {
                    let name = name_of(&request);
                    if !is_write(&request) {
                        self.finish(&mut pending, &mut output);
                    }
                    (name, self.start(request))
                }
            };
            pending.push((name, outcome));
            frames.pop();
        }
        self.finish(&mut pending, &mut output);
        output.count(&self.context, None);
        self.context.metrics.seconds.observe(began.elapsed().as_secs_f64());
        output.bytes
    }

    /// Answers a look-up. The document is copied once, into the response.
    fn look_up(&mut self, collection: &str, id: &[u8], output: &mut Output) {
        let found = translate::raw_value(id).and_then(|id| {
            let append = |document: &bson::raw::RawDocument| {
                output.append_found(Some(document.as_bytes()));
            };
            self.prepared(collection)?.get_raw(id, append)
        });
        let outcome = match found {
            Ok(Some(())) => "ok",
            Ok(None) => {
                output.append_found(None);
                "ok"
            }
            Err(error) => {
                output.append(&translate::error(&error));
                "error"
            }
        };
        output.count(&self.context, Some(("find_by_id", outcome)));
    }

    /// Returns the prepared look-up of a collection.
    fn prepared(&mut self, collection: &str) -> slate::Result<&mut PreparedLookup> {
        self.lookup.take_if(|lookup| !translate::is_namespace(lookup.collection(), collection));
        match &mut self.lookup {
            Some(lookup) => Ok(lookup),
            none => Ok(none.insert(self.context.engine.prepare_lookup(&translate::namespace(collection))?)),
        }
    }

    fn start(&mut self, request: Request) -> Outcome {
        match request {
            Request::Hello { version, token } => Outcome::Ready(self.hello(version, token.as_deref())),
            _ if !self.authenticated => Outcome::Ready(error(
                ErrorCode::Unauthenticated,
                "this server requires a token: send Hello first",
            )),
            request => execute(&self.context, request),
        }
    }

    fn hello(&mut self, version: u32, token: Option<&str>) -> Response {
        if version != VERSION {
            return error(
                ErrorCode::Invalid,
                format!("protocol version {version} is not supported, only {VERSION}"),
            );
        }
        if let Some(expected) = &self.context.token {
            self.authenticated = token.is_some_and(|token| {
                constant_time::verify_slices_are_equal(token.as_bytes(), expected.as_bytes()).is_ok()
            });
            if !self.authenticated {
                self.refused = true;
                return error(ErrorCode::Unauthenticated, "the token is not valid");
            }
        }
        Response::Hello {
            version: VERSION,
            boot_id: self.context.engine.boot_id().to_owned(),
            store: self.context.store.to_owned(),
        }
    }

    fn finish(&self, pending: &mut Vec<(&'static str, Outcome)>, output: &mut Output) {
        for (name, outcome) in pending.drain(..) {
            self.append((name, outcome.wait()), output);
        }
    }

    fn append(&self, (name, response): (&'static str, Response), output: &mut Output) {
        let outcome = if matches!(response, Response::Error { .. }) { "error" } else { "ok" };
        output.count(&self.context, Some((name, outcome)));
        output.append(&response);
    }
}

/// Encoded responses.
#[derive(Debug, Default)]
struct Output {
    bytes: Vec<u8>,
    /// Requests of the same name and outcome in a row, which are counted together.
    same: Option<((&'static str, &'static str), u64)>,
}

impl Output {
    fn append(&mut self, response: &impl serde::Serialize) {
        let from = self.bytes.len();
        let encoded = protocol::encode_frame(response, &mut self.bytes);
        if encoded.is_err() || self.bytes.len() - from > protocol::FRAME_LEN_MAX {
            self.bytes.truncate(from);
            let response = error(ErrorCode::TooLarge, "the response exceeds the frame limit");
            // A short message always encodes.
            let _ = protocol::encode_frame(&response, &mut self.bytes);
        }
    }

    /// Appends the response to a look-up. A document is shorter than a frame.
    fn append_found(&mut self, document: Option<&[u8]>) {
        Found::Document { document }.encode_frame(&mut self.bytes);
    }

    fn count(&mut self, context: &SharedContext, next: Option<(&'static str, &'static str)>) {
        if let Some((kind, count)) = &mut self.same
            && Some(*kind) == next
        {
            *count += 1;
            return;
        }
        if let Some(((request, outcome), count)) = self.same.take() {
            let labels = RequestLabels { protocol: "slate", request, outcome };
            context.metrics.requests.get_or_create(&labels).inc_by(count);
        }
        self.same = next.map(|next| (next, 1));
    }
}

fn error(code: ErrorCode, message: impl Into<String>) -> Response {
    Response::Error { code, message: message.into() }
}

fn is_write(request: &Request) -> bool {
    matches!(
        request,
        Request::InsertOne { .. }
            | Request::InsertMany { .. }
            | Request::UpdateOne(_)
            | Request::UpdateMany(_)
            | Request::ReplaceOne(_)
            | Request::DeleteOne { .. }
            | Request::DeleteMany { .. }
            | Request::UpsertMany { .. }
            | Request::MergeMany { .. }
            | Request::Transaction { .. }
    )
}

fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Hello { .. } => "hello",
        Request::Ping => "ping",
        Request::CreateCollection { .. } => "create_collection",
        Request::ListCollections => "list_collections",
        Request::DropCollection { .. } => "drop_collection",
        Request::CreateIndex { .. } => "create_index",
        Request::DropIndex { .. } => "drop_index",
        Request::ListIndexes { .. } => "list_indexes",
        Request::InsertOne { .. } => "insert_one",
        Request::InsertMany { .. } => "insert_many",
        Request::Find(_) => "find",
        Request::FindOne(_) => "find_one",
        Request::FindById { .. } => "find_by_id",
        Request::GetMore { .. } => "get_more",
        Request::CloseCursor { .. } => "close_cursor",
        Request::UpdateOne(_) => "update_one",
        Request::UpdateMany(_) => "update_many",
        Request::ReplaceOne(_) => "replace_one",
        Request::DeleteOne { .. } => "delete_one",
        Request::DeleteMany { .. } => "delete_many",
        Request::Count { .. } => "count",
        Request::Distinct { .. } => "distinct",
        Request::UpsertMany { .. } => "upsert_many",
        Request::MergeMany { .. } => "merge_many",
        Request::Transaction { .. } => "transaction",
        Request::Explain(_) => "explain",
    }
}
