//! A log file that rotates by size: `audit.log` becomes `audit-2026-01-02T03-04-05.678.log`, as lumberjack names it.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use flate2::{Compression, write::GzEncoder};
use orlop_api::time::Time;

/// Magic numbers of file systems whose writes may wait for another machine or program: NFS, SMB (two), CIFS, FUSE, Ceph,
/// 9P, AFS.
const REMOTE_FILE_SYSTEMS: &[u32] =
    &[0x6969, 0x517b, 0xfe53_4d42, 0xff53_4d42, 0x6573_5546, 0x00c3_6400, 0x0102_1997, 0x5346_414f];

/// Limits of a log file and its backups. Zero means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RotationOptions {
    /// Bytes of the file before it is rotated.
    pub file_bytes_max: u64,
    /// Days that backups are kept.
    pub age_days_max: u64,
    /// Number of backups.
    pub backups_max: usize,
    /// True if backups are compressed.
    pub compress: bool,
}

/// A file that is appended to.
#[derive(Debug)]
pub(super) struct RotatingFile {
    path: PathBuf,
    options: RotationOptions,
    file: File,
    bytes: u64,
}

impl RotatingFile {
    /// Opens a file, mode 0600 if it is new. Its folder is created, mode 0700.
    pub(super) fn open(path: &Path, options: RotationOptions) -> io::Result<Self> {
        if let Some(folder) =
            path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
        {
            fs::create_dir_all(folder)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
        let file = create(path, 0o600)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), options, file, bytes })
    }

    /// Returns true if the file is a regular one on a disk of this machine.
    pub(super) fn is_local(&self) -> io::Result<bool> {
        let kind = rustix::fs::fstatfs(&self.file)?.f_type;
        Ok(self.file.metadata()?.is_file() && !REMOTE_FILE_SYSTEMS.contains(&(kind as u32)))
    }

    /// Appends whole lines, and rotates between lines.
    pub(super) fn append(&mut self, mut lines: &[u8]) -> io::Result<()> {
        while !lines.is_empty() {
            let fits = self.fitting(lines);
            if fits == 0 {
                self.rotate()?;
                continue;
            }
            let (now, later) = lines.split_at(fits);
            self.file.write_all(now)?;
            self.bytes += fits as u64;
            lines = later;
        }
        Ok(())
    }

    /// Returns the bytes of the lines that fit in the file. A line that is larger than a file gets one of its own.
    fn fitting(&self, lines: &[u8]) -> usize {
        let limit = self.options.file_bytes_max;
        if limit == 0 || self.bytes + lines.len() as u64 <= limit {
            return lines.len();
        }
        let room = usize::try_from(limit.saturating_sub(self.bytes)).unwrap_or(usize::MAX).min(lines.len());
        let end = |lines: &[u8]| lines.iter().rposition(|byte| *byte == b'\n').map_or(0, |place| place + 1);
        match end(&lines[..room]) {
            0 if self.bytes == 0 => {
                lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |place| place + 1)
            }
            fits => fits,
        }
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mode = self.file.metadata()?.permissions().mode() & 0o777;
        let mut time = now();
        let mut backup = backup_path(&self.path, time);
        while backup.exists() {
            // Two rotations within a millisecond.
            time.nanoseconds += 1_000_000;
            if time.nanoseconds >= 1_000_000_000 {
                time = Time { unix_seconds: time.unix_seconds + 1, nanoseconds: 0 };
            }
            backup = backup_path(&self.path, time);
        }
        match fs::rename(&self.path, &backup) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.file = create(&self.path, mode)?;
        self.bytes = 0;
        let (path, options) = (self.path.clone(), self.options);
        // Compression takes long: events do not wait for it.
        let spawned = std::thread::Builder::new().name("orlop-audit-mill".into()).spawn(move || {
            if let Err(error) = tidy_backups(&path, options, now()) {
                tracing::warn!(%error, path = %path.display(), "cannot tidy audit log backups");
            }
        });
        spawned.map(drop)
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(mode).open(path)
}

fn now() -> Time {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { unix_seconds: elapsed.as_secs().cast_signed(), nanoseconds: elapsed.subsec_nanos() }
}

/// Returns the parts of a file name before and after its backups' timestamps.
fn name_parts(path: &Path) -> (String, String) {
    let text = |part: Option<&std::ffi::OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let extension = path.extension().map(|_| format!(".{}", text(path.extension()))).unwrap_or_default();
    (format!("{}-", text(path.file_stem())), extension)
}

fn backup_path(path: &Path, time: Time) -> PathBuf {
    let (start, end) = name_parts(path);
    let seconds = time.to_string().trim_end_matches('Z').replace(':', "-");
    path.with_file_name(format!("{start}{seconds}.{:03}{end}", time.nanoseconds / 1_000_000))
}

/// Returns the time in a backup's name.
fn backup_time(name: &str, start: &str, end: &str) -> Option<Time> {
    let stamp = name.strip_suffix(".gz").unwrap_or(name).strip_prefix(start)?.strip_suffix(end)?;
    let (date, time) = stamp.split_once('T')?;
    Time::parse(&format!("{date}T{}Z", time.replace('-', ":")))
}

/// Deletes backups that are too many or too old, and compresses the others.
fn tidy_backups(path: &Path, options: RotationOptions, now: Time) -> io::Result<()> {
    let (start, end) = name_parts(path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut backups = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(time) = backup_time(&entry.file_name().to_string_lossy(), &start, &end) {
            backups.push((time, entry.path()));
        }
    }
    backups.sort_unstable_by(|left, right| right.cmp(left));
    let oldest = Duration::from_secs(options.age_days_max.saturating_mul(86_400)).as_secs().cast_signed();
    for (index, (time, backup)) in backups.iter().enumerate() {
        let too_many = options.backups_max > 0 && index >= options.backups_max;
        let too_old = options.age_days_max > 0 && now.seconds_since(*time) > oldest;
        if too_many || too_old {
            fs::remove_file(backup)?;
        } else if options.compress && backup.extension().is_none_or(|extension| extension != "gz") {
            compress(backup)?;
        }
    }
    Ok(())
}

fn compress(backup: &Path) -> io::Result<()> {
    let mut from = File::open(backup)?;
    let mode = from.metadata()?.permissions().mode() & 0o777;
    let mut name = backup.as_os_str().to_owned();
    name.push(".gz");
    let target = PathBuf::from(name);
    let partial = target.with_extension("gz.partial");
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(mode).open(&partial)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    io::copy(&mut from, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::rename(&partial, &target)?;
    fs::remove_file(backup)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let names =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn file_rotates_between_lines_and_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join("audit.log");
        let options = RotationOptions { file_bytes_max: 10, ..RotationOptions::default() };
        let mut file = RotatingFile::open(&path, options).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        file.append(b"one\ntwo\nthree\nlonger than a file\nfour\n").unwrap();
        let mut whole = Vec::new();
        for name in names(path.parent().unwrap()) {
            whole.push(fs::read_to_string(path.with_file_name(name)).unwrap());
        }
        whole.sort();
        assert_eq!(whole, ["four\n", "longer than a file\n", "one\ntwo\n", "three\n"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "four\n");
    }

    #[test]
    fn old_and_surplus_backups_are_deleted_and_others_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        for day in 1..=4 {
            fs::write(backup_path(&path, Time::from_unix(day * 86_400)), "line\n").unwrap();
        }
        fs::write(folder.path().join("audit-notes.log"), "not a backup").unwrap();
        let options = RotationOptions { age_days_max: 3, backups_max: 2, compress: true, file_bytes_max: 1 };
        tidy_backups(&path, options, Time::from_unix(4 * 86_400)).unwrap();
        let left = names(folder.path());
        let expected = [
            "audit-1970-01-04T00-00-00.000.log.gz",
            "audit-1970-01-05T00-00-00.000.log.gz",
            "audit-notes.log",
        ];
        assert_eq!(left, expected);
        let mut text = String::new();
        let compressed = File::open(folder.path().join(expected[0])).unwrap();
        flate2::read::GzDecoder::new(compressed).read_to_string(&mut text).unwrap();
        assert_eq!(text, "line\n");
        tidy_backups(&path, RotationOptions { backups_max: 0, ..options }, Time::from_unix(10 * 86_400))
            .unwrap();
        assert_eq!(names(folder.path()), ["audit-notes.log"]);
    }
}
