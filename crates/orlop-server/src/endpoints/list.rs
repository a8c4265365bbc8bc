//! List: a collection at one moment, streamed from the store into the answer.
//!
//! The plain case copies each stored object once, from the database's memory into the page that it leaves in.
//! Everything else (tables, YAML, protobuf, selectors that the index cannot answer, objects that are stored in another
//! form than they are served in) goes through decoded objects, one after another. Memory does not grow with the list.

use std::sync::Arc;

use http::Response;
use orlop_api::{continue_token::ContinueToken, status::Status};
use orlop_store::{EncodedPage, Error, Pages, Read, ReadResult, Revision, RowEncoder};
use serde_json::{Value, json};

use super::{Request, list_stream};
use crate::{
    http::body::Body,
    registry::Found,
    request::resource_version::Moment,
    storage::{selection::Selection, status_from_store_error},
};

/// What a list reads, and what goes into its metadata.
#[derive(Clone)]
pub(super) struct Listing {
    pub(super) selection: Selection,
    pub(super) pages: Pages,
    pub(super) limit: usize,
    /// The revision of the first page of a continued list.
    pinned: Option<Revision>,
    /// What was remaining is told only where nothing selects.
    pub(super) counted: bool,
}

pub(super) async fn list(request: Request) -> Result<Response<Body>, Status> {
    let listing = Listing::begin(&request).await?;
    list_stream::stream(request, listing, None).await
}

impl Listing {
    pub(super) async fn begin(request: &Request) -> Result<Self, Status> {
        let (kind, query) = (&request.kind, &request.query);
        let mut selection =
            Selection::of(&request.cluster.objects, kind, &request.about.namespace, "", query)?;
        query.number("timeoutSeconds")?;
        let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let mut pinned = None;
        let mut revision = None;
        match Moment::of(query)? {
            Moment::Newest => {}
            Moment::NotOlderThan(wanted) => request.cluster.objects.not_older_than(wanted).await?,
            Moment::Exactly(wanted) => {
                // Another server may have told the client of a revision that this one is yet to hear of.
                request.cluster.objects.not_older_than(wanted).await?;
                (revision, pinned) = (Some(wanted), Some(wanted));
            }
            Moment::Continued(token) => {
                let start = format!("{}{}", selection.prefix, token.start_key);
                if !selection.range.contains(start.as_bytes()) {
                    return Err(Status::bad_request("invalid continue token: continue key is not valid"));
                }
                selection.range = match selection.range.end() {
                    Some(end) => orlop_store::KeyRange::between(start, end.clone()),
                    None => orlop_store::KeyRange::starting_at(start),
                };
                revision = token.revision.and_then(|revision| Revision::try_from(revision).ok());
                pinned = revision;
            }
        }
        let counted = limit > 0 && !selection.selective;
        // A rest that the index cannot answer may discard any object, so the limit is applied afterwards.
        let read_limit = if selection.is_indexed() { limit } else { 0 };
        let read = Read {
            revision,
            limit: read_limit,
            filter: selection.filter.clone(),
            count: counted,
            ..Read::new(selection.range.clone())
        };
        let pages =
            request.cluster.objects.store.pages(read).map_err(|error| status_from_store_error(&error))?;
        Ok(Self { selection, pages, limit, pinned, counted })
    }

    /// The next page, as it is stored.
    pub(super) async fn next(&mut self, request: &Request) -> Result<Option<ReadResult>, Status> {
        self.pages.next().await.map_err(|error| told(request, &error))
    }

    /// The next page, as it is served where that takes no decoding.
    pub(super) async fn next_encoded(
        &mut self,
        request: &Request,
        form: &Arc<dyn RowEncoder>,
    ) -> Result<Option<EncodedPage>, Status> {
        self.pages.next_encoded(form).await.map_err(|error| told(request, &error))
    }

    /// The revision the list shows.
    pub(super) fn revision(&self, page: &ReadResult) -> Revision {
        self.pinned.unwrap_or(page.revision)
    }

    /// The token that goes on after a key.
    pub(super) fn token(&self, revision: Revision, last_key: &[u8]) -> String {
        let start = String::from_utf8_lossy(&last_key[self.selection.prefix.len().min(last_key.len())..]);
        let start_key = format!("{start}\0");
        ContinueToken { revision: u64::try_from(revision).ok(), start_key }.encode()
    }

    pub(super) fn metadata(&self, revision: Revision, rest: Option<(String, Option<u64>)>) -> Value {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some((token, remaining)) = rest {
            metadata["continue"] = token.into();
            if let Some(remaining) = remaining {
                metadata["remainingItemCount"] = remaining.into();
            }
        }
        metadata
    }
}

/// What a client is told of trouble with its list.
fn told(request: &Request, error: &Error) -> Status {
    let token = request.query.text("continue");
    if token.is_empty() || !matches!(error, Error::Expired { .. }) {
        return status_from_store_error(error);
    }
    let start_key = ContinueToken::decode(token).map(|token| token.start_key).unwrap_or_default();
    Status::continue_expired(&ContinueToken { revision: None, start_key }.encode())
}

/// Every object that a request selects, decoded: for kinds of which there are few.
pub(crate) async fn select(request: &Request) -> Result<(Revision, Vec<Value>), Status> {
    let mut listing = Listing::begin(request).await?;
    let (mut revision, mut selected) = (0, Vec::new());
    while let Some(page) = listing.next(request).await? {
        revision = listing.pinned.unwrap_or(page.revision);
        let found: Vec<Found> = page.kvs.into_iter().map(Found::from).collect();
        let objects = request.kind.read_all(&found).await?;
        selected
            .extend(objects.into_iter().filter(|object| listing.selection.matches(&request.kind, object)));
    }
    Ok((revision, selected))
}
