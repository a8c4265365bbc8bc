//! Log files of a container in the format of CRI: a line is its time, its stream, a tag and its text.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use k8s_openapi::jiff::Timestamp;

/// Bytes of a line before it is split into partial ones.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Writer of a container's log, rotated by size.
#[derive(Debug)]
pub(super) struct LogWriter {
    path: PathBuf,
    file: File,
    size: u64,
    bytes_max: u64,
    files_max: usize,
}

impl LogWriter {
    pub(super) fn open(path: &Path, bytes_max: u64, files_max: usize) -> io::Result<Self> {
        let (file, size) = open(path)?;
        Ok(Self { path: path.to_owned(), file, size, bytes_max, files_max: files_max.max(1) })
    }

    /// Appends output of a stream. A line that is not complete stays in `pending`.
    pub(super) fn write(&mut self, stream: &str, pending: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
        let now = Timestamp::now();
        pending.extend(bytes);
        let mut lines = Vec::with_capacity(bytes.len() + 64);
        let mut start = 0;
        while let Some(length) = pending[start..].iter().position(|byte| *byte == b'\n') {
            append(&mut lines, now, stream, &pending[start..start + length], true);
            start += length + 1;
        }
        pending.drain(..start);
        if pending.len() >= LINE_BYTES_MAX {
            append(&mut lines, now, stream, pending, false);
            pending.clear();
        }
        self.append(&lines)
    }

    /// Appends what is left of a stream at its end.
    pub(super) fn finish(&mut self, stream: &str, pending: &mut Vec<u8>) -> io::Result<()> {
        if pending.is_empty() {
            return Ok(());
        }
        let mut line = Vec::new();
        append(&mut line, Timestamp::now(), stream, pending, false);
        pending.clear();
        self.append(&line)
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        self.file.write_all(lines)?;
        self.size += lines.len() as u64;
        if self.size >= self.bytes_max { self.rotate() } else { Ok(()) }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let stamp = Timestamp::now().strftime("%Y%m%d-%H%M%S%3f").to_string();
        fs::rename(&self.path, rotated_path(&self.path, &stamp))?;
        (self.file, self.size) = open(&self.path)?;
        let mut rotated = rotated(&self.path)?;
        while rotated.len() + 1 > self.files_max {
            fs::remove_file(rotated.remove(0))?;
        }
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

fn append(lines: &mut Vec<u8>, now: Timestamp, stream: &str, text: &[u8], is_complete: bool) {
    let tag = if is_complete { 'F' } else { 'P' };
    // Nine digits, so that lines of one file align and compare as text.
    lines.extend(format!("{} {stream} {tag} ", now.strftime("%Y-%m-%dT%H:%M:%S.%9fZ")).as_bytes());
    lines.extend(text);
    lines.push(b'\n');
}

fn rotated_path(path: &Path, stamp: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{stamp}"));
    path.with_file_name(name)
}

/// Returns the rotated files of a log, the oldest first.
pub(crate) fn rotated(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(folder) = path.parent() else { return Ok(Vec::new()) };
    let prefix = format!("{}.", path.file_name().unwrap_or_default().to_string_lossy());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &Path) -> Vec<String> {
        let content = fs::read_to_string(path).unwrap();
        content.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    #[test]
    fn lines_are_tagged_and_partial_ones_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let mut log = LogWriter::open(&path, 1 << 20, 5).unwrap();
        let mut pending = Vec::new();
        log.write("stdout", &mut pending, b"a\nb").unwrap();
        log.write("stdout", &mut pending, b"c\n\nend").unwrap();
        assert_eq!(texts(&path), ["stdout F a", "stdout F bc", "stdout F "]);
        log.finish("stdout", &mut pending).unwrap();
        assert_eq!(texts(&path)[3], "stdout P end");
    }

    #[test]
    fn log_is_rotated_and_old_files_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.log");
        let mut log = LogWriter::open(&path, 100, 3).unwrap();
        for line in 0..20 {
            log.write("stderr", &mut Vec::new(), format!("line {line:060}\n").as_bytes()).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        assert_eq!(rotated(&path).unwrap().len(), 2);
    }
}
