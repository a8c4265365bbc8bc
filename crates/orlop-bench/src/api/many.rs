//! A hundred thousand objects: what a server that keeps its state in the database holds of them.

use std::path::Path;

use super::{Contender, Server, lists};
use crate::{
    download::{Download, JSON, Keep},
    report::Report,
};

/// Fills a server of its own, and lists all of it once.
pub(crate) async fn run(
    report: &mut Report,
    orlop: &Path,
    folder: &Path,
    objects: usize,
) -> anyhow::Result<()> {
    std::fs::create_dir(folder)?;
    let server = Server::start(orlop, folder)?;
    let contender = Contender::ours(&server).await?;
    let collection = lists::fill_plain(&contender, objects).await?;
    report.alone(format!("api: RSS with {objects} ConfigMaps"), "MiB", server.resident_mib());
    let mut download = Download::connect(&contender.target).await?;
    let bytes = download.get(&collection, JSON, Keep::Nothing).await?;
    anyhow::ensure!(bytes > objects * 1024, "the list was {bytes} bytes");
    report.alone(format!("api: RSS after a list of {objects} ConfigMaps"), "MiB", server.resident_mib());
    Ok(())
}
