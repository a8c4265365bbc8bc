//! Delete every object that a selector selects, a page at a time: however many there are, few are in memory.
//!
//! The answer lists what was selected, as a list would. Where it is so long that it has begun before the last
//! object is deleted, it breaks off if that fails.

use futures_util::future::join_all;
use http::Response;
use orlop_api::status::Status;

use super::{
    Request,
    delete::{DeleteOptions, delete_named},
    list::Listing,
    list_stream,
};
use crate::http::body::Body;

/// Objects that are deleted at a time, so that their deletions share a sync.
const TOGETHER: usize = 32;

pub(super) async fn delete_collection(request: Request) -> Result<Response<Body>, Status> {
    let options = DeleteOptions::of(&request)?;
    let listing = Listing::begin(&request).await?;
    list_stream::stream(request, listing, Some(options)).await
}

/// Deletes objects of the request's kind by namespace and name.
pub(super) async fn delete_all(
    request: &Request,
    options: &DeleteOptions,
    named: &[(String, String)],
) -> Result<(), Status> {
    // Of what is there under a condition, nothing goes after the first that does not meet it.
    let together = if options.has_preconditions() { 1 } else { TOGETHER };
    for some in named.chunks(together) {
        let deletions = some.iter().map(|(namespace, name)| delete_named(request, options, namespace, name));
        for deleted in join_all(deletions).await {
            match deleted {
                Ok(_) => {}
                // Somebody else was faster.
                Err(status) if status.code == 404 => {}
                Err(status) => return Err(status),
            }
        }
    }
    Ok(())
}
