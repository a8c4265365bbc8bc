//! List: a collection at one revision, streamed from the store into the response.
//!
//! The hot path copies each stored object once, from the database's memory into the response. Tables, YAML,
//! selectors that the index cannot answer, and objects that need conversion are decoded one after another.
//! Memory does not grow with the list.

use http::Response;
use orlop_api::status::Status;

use super::{
    Request,
    list_stream::{ListPages, respond},
    listing::Listing,
};
use crate::http::body::Body;

pub(super) async fn list(request: Request) -> Result<Response<Body>, Status> {
    let listing = Listing::begin(&request).await?;
    respond(ListPages::new(request, listing)?).await
}
