//! Import and export of JSON lines.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Write},
    path::Path,
};

use anyhow::{Context as _, bail};
use bson::Document;
use indicatif::{ProgressBar, ProgressStyle};
use slate_client::{
    Client,
    protocol::{Doc, ErrorCode, Find, Request, Response},
};

use crate::{commands::parse, output::json};

/// Documents sent at once.
const BATCH_DOCUMENTS: usize = 1000;
/// Bytes of JSON sent at once.
const BATCH_BYTES: usize = 8 << 20;

pub(crate) async fn import(
    client: &Client,
    collection: &str,
    file: Option<&Path>,
    upsert: bool,
) -> anyhow::Result<()> {
    match client.create_collection(collection, Vec::new()).await {
        Err(error) if error.code() == Some(ErrorCode::AlreadyExists) => {}
        result => result?,
    }
    let (reader, progress): (Box<dyn BufRead>, ProgressBar) = match file {
        Some(path) => {
            let file = File::open(path).with_context(|| path.display().to_string())?;
            let progress = ProgressBar::new(file.metadata()?.len());
            progress.set_style(ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {msg} {eta}")?);
            (Box::new(BufReader::new(progress.wrap_read(file))), progress)
        }
        None => (Box::new(BufReader::new(io::stdin())), ProgressBar::no_length()),
    };
    let (mut batch, mut bytes, mut total) = (Vec::new(), 0, 0);
    for (number, line) in reader.lines().enumerate() {
        let line = line?;
        if line.trim().is_empty() {
            continue;
        }
        bytes += line.len();
        batch.push(parse(&line).with_context(|| format!("line {}", number + 1))?);
        if batch.len() >= BATCH_DOCUMENTS || bytes >= BATCH_BYTES {
            total += send(client, collection, &batch, upsert).await.with_context(|| imported(total))?;
            batch.clear();
            bytes = 0;
            progress.set_message(format!("{total} documents"));
        }
    }
    if !batch.is_empty() {
        total += send(client, collection, &batch, upsert).await.with_context(|| imported(total))?;
    }
    progress.finish_and_clear();
    eprintln!("{}", imported(total));
    Ok(())
}

fn imported(total: usize) -> String {
    format!("imported {total} documents")
}

async fn send(client: &Client, collection: &str, batch: &[Document], upsert: bool) -> anyhow::Result<usize> {
    if !upsert {
        return Ok(client.insert_many(collection, batch).await?);
    }
    let documents = batch.iter().map(Doc::new).collect::<Result<Vec<_>, _>>()?;
    match client.call(&Request::UpsertMany { collection: collection.to_owned(), documents }).await? {
        Response::Upserted { .. } => Ok(batch.len()),
        other => bail!("unexpected response: {other:?}"),
    }
}

pub(crate) async fn export(
    client: &Client,
    collection: &str,
    file: Option<&Path>,
    filter: &str,
) -> anyhow::Result<()> {
    let filter = parse(filter)?;
    let total = client.count(collection, &filter).await?;
    let mut writer: Box<dyn Write> = match file {
        Some(path) => {
            Box::new(BufWriter::new(File::create(path).with_context(|| path.display().to_string())?))
        }
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let progress = if file.is_some() { ProgressBar::new(total) } else { ProgressBar::hidden() };
    let find = Find { collection: collection.to_owned(), filter: Doc::new(&filter)?, ..Find::default() };
    // One connection, so a batch at a time: memory does not grow with the collection.
    let mut response = client.call(&Request::Find(find)).await?;
    let mut written = 0_u64;
    loop {
        let Response::Documents { documents, cursor } = response else {
            bail!("unexpected response: {response:?}")
        };
        for document in &documents {
            writeln!(writer, "{}", json(&document.decode()?))?;
        }
        written += documents.len() as u64;
        progress.set_position(written);
        if cursor == 0 {
            break;
        }
        response = client.call(&Request::GetMore { cursor, batch_size: 0 }).await?;
    }
    writer.flush()?;
    progress.finish_and_clear();
    if file.is_some() {
        eprintln!("exported {written} documents");
    }
    Ok(())
}
