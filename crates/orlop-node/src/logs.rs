//! Reads logs of containers: tail, since, limits, follow.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

use crate::shim::log_writer::rotated;

/// Bytes that are read at a time.
const CHUNK: usize = 32 << 10;
/// Interval at which a followed log is polled.
const POLL: Duration = Duration::from_millis(100);
/// Characters of a time in a log.
const TIME_LENGTH: usize = "2026-01-01T00:00:00.000000000Z".len();

/// Selection of a log's lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub(crate) follow: bool,
    pub(crate) since: Option<Timestamp>,
    pub(crate) timestamps: bool,
    pub(crate) tail: Option<u64>,
    pub(crate) limit_bytes: Option<u64>,
    /// `stdout` or `stderr` alone.
    pub(crate) stream: Option<String>,
}

/// Writes the lines of a log. `is_live` returns true while more may come.
pub(crate) async fn stream(
    path: &Path,
    options: &Options,
    is_live: impl Fn() -> bool,
    output: mpsc::Sender<io::Result<Bytes>>,
) {
    let mut sink = Sink { options, output, left: options.limit_bytes, is_partial: false };
    if let Err(error) = copy(path, options, is_live, &mut sink).await {
        let _ = sink.output.send(Err(error)).await;
    }
}

/// Returns the last lines of a log, without times.
pub(crate) fn tail(path: &Path, lines: u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.read_to_end(&mut text)?;
    let start = start_of_tail(&text, lines);
    let mut output = Vec::new();
    let options = Options::default();
    let mut is_partial = false;
    for line in text[start..].split_inclusive(|byte| *byte == b'\n') {
        output.extend(format(line, &options, &mut is_partial).unwrap_or_default());
    }
    Ok(output)
}

struct Sink<'a> {
    options: &'a Options,
    output: mpsc::Sender<io::Result<Bytes>>,
    left: Option<u64>,
    /// The last line was one part of a longer one.
    is_partial: bool,
}

impl Sink<'_> {
    /// Sends complete lines. Returns false once the reader is gone or has enough.
    async fn send(&mut self, lines: &[u8]) -> bool {
        let mut output = Vec::with_capacity(lines.len());
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            output.extend(format(line, self.options, &mut self.is_partial).unwrap_or_default());
        }
        if let Some(left) = &mut self.left {
            output.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
            *left -= output.len() as u64;
        }
        if !output.is_empty() && self.output.send(Ok(output.into())).await.is_err() {
            return false;
        }
        self.left != Some(0)
    }
}

async fn copy(
    path: &Path,
    options: &Options,
    is_live: impl Fn() -> bool,
    sink: &mut Sink<'_>,
) -> io::Result<()> {
    // Rotated files are part of the log for a reader who asks for all of it.
    let mut files: Vec<PathBuf> = rotated(path).unwrap_or_default();
    files.push(path.to_owned());
    if options.tail.is_some() {
        files.drain(..files.len() - 1);
    }
    let last = files.pop();
    for file in files {
        let mut file = File::open(file)?;
        if !copy_file(&mut file, &mut Vec::new(), sink).await? {
            return Ok(());
        }
    }
    let Some(path) = last else { return Ok(()) };
    let mut file = loop {
        match File::open(&path) {
            Ok(file) => break file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && options.follow && is_live() => {
                tokio::time::sleep(POLL).await;
            }
            Err(error) => return Err(error),
        }
    };
    if let Some(tail) = options.tail {
        seek_tail(&mut file, tail)?;
    }
    let mut pending = Vec::new();
    loop {
        // Asked first: what is written until the end is still read.
        let may_grow = options.follow && is_live();
        if !copy_file(&mut file, &mut pending, sink).await? || sink.output.is_closed() {
            return Ok(());
        }
        if !may_grow {
            return Ok(());
        }
        tokio::time::sleep(POLL).await;
        if was_rotated(&file, &path) {
            copy_file(&mut file, &mut pending, sink).await?;
            file = File::open(&path)?;
        }
    }
}

fn was_rotated(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |found: io::Result<std::fs::Metadata>| found.map(|found| found.ino()).ok();
    let current = inode(std::fs::metadata(path));
    current.is_some() && current != inode(file.metadata())
}

/// Sends what is in a file after its position. An incomplete line stays pending.
async fn copy_file(file: &mut File, pending: &mut Vec<u8>, sink: &mut Sink<'_>) -> io::Result<bool> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            return Ok(true);
        }
        pending.extend(&buffer[..length]);
        if let Some(end) = pending.iter().rposition(|byte| *byte == b'\n') {
            let lines: Vec<u8> = pending.drain(..=end).collect();
            if !sink.send(&lines).await {
                return Ok(false);
            }
        }
    }
}

/// Moves to the start of the last lines.
fn seek_tail(file: &mut File, lines: u64) -> io::Result<()> {
    let mut position = file.seek(SeekFrom::End(0))?;
    let mut tail = Vec::new();
    while position > 0 {
        let length = position.min(CHUNK as u64);
        position -= length;
        file.seek(SeekFrom::Start(position))?;
        let mut chunk = vec![0; usize::try_from(length).unwrap_or(CHUNK)];
        file.read_exact(&mut chunk)?;
        chunk.extend(&tail);
        tail = chunk;
        let start = start_of_tail(&tail, lines);
        if start > 0 {
            file.seek(SeekFrom::Start(position + start as u64))?;
            return Ok(());
        }
    }
    file.seek(SeekFrom::Start(start_of_tail(&tail, lines) as u64))?;
    Ok(())
}

/// Returns where the last lines of a text begin.
fn start_of_tail(text: &[u8], lines: u64) -> usize {
    let mut ends =
        text.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n').map(|(index, _)| index + 1);
    ends.nth(usize::try_from(lines).unwrap_or(usize::MAX)).unwrap_or(0)
}

/// Formats a line for a reader; `None` for one that is not selected.
fn format(line: &[u8], options: &Options, is_partial: &mut bool) -> Option<Vec<u8>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if options.stream.as_deref().is_some_and(|wanted| wanted.as_bytes() != stream) {
        return None;
    }
    if let Some(since) = options.since {
        let at: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
        if at < since {
            return None;
        }
    }
    let continues = std::mem::replace(is_partial, tag == b"P");
    let mut output = Vec::with_capacity(TIME_LENGTH + text.len());
    if options.timestamps && !continues {
        output.extend(time);
        output.push(b' ');
    }
    let text = if tag == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
    output.extend(text);
    Some(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "2026-01-01T00:00:01.000000000Z stdout F one\n\
        2026-01-01T00:00:02.000000000Z stderr F two\n\
        2026-01-01T00:00:03.000000000Z stdout P thr\n\
        2026-01-01T00:00:03.000000000Z stdout F ee\n";

    async fn read(options: Options) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        std::fs::write(&path, LOG).unwrap();
        let (sender, mut receiver) = mpsc::channel(64);
        stream(&path, &options, || false, sender).await;
        let mut output = Vec::new();
        while let Some(chunk) = receiver.recv().await {
            output.extend(chunk.unwrap());
        }
        String::from_utf8(output).unwrap()
    }

    #[tokio::test]
    async fn lines_are_selected_and_formatted() {
        assert_eq!(read(Options::default()).await, "one\ntwo\nthree\n");
        assert_eq!(read(Options { tail: Some(2), ..Options::default() }).await, "three\n");
        assert_eq!(read(Options { tail: Some(0), ..Options::default() }).await, "");
        assert_eq!(read(Options { limit_bytes: Some(5), ..Options::default() }).await, "one\nt");
        let since = Some("2026-01-01T00:00:02Z".parse().unwrap());
        assert_eq!(read(Options { since, ..Options::default() }).await, "two\nthree\n");
        let stderr = Some("stderr".to_owned());
        let times = Options { timestamps: true, stream: stderr, ..Options::default() };
        assert_eq!(read(times).await, "2026-01-01T00:00:02.000000000Z two\n");
    }
}
