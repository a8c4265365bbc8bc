//! The read of a list: selection, revision, limit and continue token of a request.

use std::sync::Arc;

use orlop_api::{continue_token::ContinueToken, fields, labels, status::Status};
use orlop_store::{EncodedPage, Error, Pages, Read, ReadResult, Revision, RowEncoder};
use serde_json::{Value, json};

use super::Request;
use crate::{
    http::query::Query,
    registry::Found,
    request::{options::check_list, resource_version::Moment},
    storage::{selection::Selection, status_from_store_error},
};

/// The read of a list.
#[derive(Clone)]
pub(super) struct Listing {
    pub(super) selection: Selection,
    pub(super) pages: Pages,
    pub(super) limit: usize,
    /// The exact revision of the list, if the request names one.
    pinned: Option<Revision>,
    /// True if remainingItemCount is known: there is a limit and no selector.
    pub(super) counted: bool,
    /// True if the list begins at the first object of the collection, and selects all.
    pub(super) is_of_all: bool,
}

/// Returns the error of a request whose selectors are refused: options are validated after the selectors are parsed, and
/// before their fields are looked up.
pub(super) fn refused_selection(query: &Query, watch: bool, refused: Status) -> Status {
    let parses = labels::parse(query.text("labelSelector")).is_ok()
        && fields::Selector::parse(query.text("fieldSelector")).is_ok();
    check_list(query, watch).err().filter(|_| parses).unwrap_or(refused)
}

impl Listing {
    pub(super) async fn begin(request: &Request) -> Result<Self, Status> {
        let (kind, query) = (&request.kind, &request.query);
        let mut selection =
            Selection::of(&request.cluster.objects, kind, &request.attributes.namespace, "", query)
                .map_err(|refused| refused_selection(query, false, refused))?;
        query.number("timeoutSeconds")?;
        let limit = usize::try_from(query.number("limit")?.unwrap_or(0)).unwrap_or(0);
        let mut pinned = None;
        let mut revision = None;
        let mut is_of_all = !selection.selective;
        match Moment::of(query)? {
            Moment::Newest => {}
            Moment::NotOlderThan(wanted) => request.cluster.objects.not_older_than(wanted).await?,
            Moment::Exactly(wanted) => {
                // Another server may have returned a revision that this one has not seen yet.
                request.cluster.objects.not_older_than(wanted).await?;
                (revision, pinned) = (Some(wanted), Some(wanted));
            }
            Moment::Continued(token) => {
                is_of_all = false;
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
        // Terms that the index cannot answer may discard any object: the limit is applied afterwards.
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
        Ok(Self { selection, pages, limit, pinned, counted, is_of_all })
    }

    /// Reads the next page as stored.
    pub(super) async fn next(&mut self, request: &Request) -> Result<Option<ReadResult>, Status> {
        self.pages.next().await.map_err(|error| list_error(request, &error))
    }

    /// Reads the next page, encoded where that takes no decoding.
    pub(super) async fn next_encoded(
        &mut self,
        request: &Request,
        form: &Arc<dyn RowEncoder>,
    ) -> Result<Option<EncodedPage>, Status> {
        self.pages.next_encoded(form).await.map_err(|error| list_error(request, &error))
    }

    /// Returns the revision of the list.
    pub(super) fn revision(&self, page: &ReadResult) -> Revision {
        self.pinned.unwrap_or(page.revision)
    }

    /// Returns the continue token after a key.
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

/// Returns the Status of an error of the store. An expired continue token comes with an inconsistent one.
fn list_error(request: &Request, error: &Error) -> Status {
    let token = request.query.text("continue");
    if token.is_empty() || !matches!(error, Error::Expired { .. }) {
        return status_from_store_error(error);
    }
    let start_key = ContinueToken::decode(token).map(|token| token.start_key).unwrap_or_default();
    Status::continue_expired(&ContinueToken { revision: None, start_key }.encode())
}

/// Returns all objects that a request selects, decoded. For small collections.
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
