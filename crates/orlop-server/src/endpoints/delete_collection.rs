//! Deletecollection: deletes what a selector selects, a page at a time, and answers with the list of it.
//!
//! The response of a long list starts before the last object is deleted; it is aborted if a deletion fails
//! after that.

use bytes::Bytes;
use futures_util::future::join_all;
use http::Response;
use orlop_api::status::Status;

use super::{
    Request,
    delete::{DeleteOptions, delete_named},
    list_stream::{ListPages, PageSource, respond},
    listing::Listing,
};
use crate::http::body::Body;

/// Objects that are deleted concurrently, so that their deletions share a group commit.
const CONCURRENT_DELETES: usize = 32;

pub(super) async fn delete_collection(request: Request) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::of(&request)?;
    options.refuse_unsafe_deletion()?;
    let listing = Listing::begin(&request).await?;
    respond(DeletedPages { pages: ListPages::new(request, listing)?.with_names(), options }).await
}

/// The pages of a list, each deleted before it is returned.
struct DeletedPages {
    pages: ListPages,
    options: DeleteOptions,
}

impl PageSource for DeletedPages {
    fn list(&self) -> &ListPages {
        &self.pages
    }

    fn holds_response(&self) -> bool {
        true
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let items = self.pages.next().await?;
        let names = self.pages.take_names();
        delete_all(&self.pages.request, &self.options, &names).await?;
        Ok(items)
    }
}

/// Deletes objects of the request's kind by namespace and name.
async fn delete_all(
    request: &Request,
    options: &DeleteOptions,
    names: &[(String, String)],
) -> Result<(), Status> {
    // With preconditions, nothing is deleted after the first object that does not meet them.
    let concurrent = if options.has_preconditions() { 1 } else { CONCURRENT_DELETES };
    for batch in names.chunks(concurrent) {
        let deletions = batch.iter().map(|(namespace, name)| delete_named(request, options, namespace, name));
        for deleted in join_all(deletions).await {
            match deleted {
                Ok(_) => {}
                // Deleted concurrently.
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
    }
    Ok(())
}
