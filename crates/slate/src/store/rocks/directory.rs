//! The data directory: one of ours, or refused.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Names the format of a data directory, so that a foreign or future one is refused.
const FORMAT_FILE: &str = "SLATE_FORMAT";
const FORMAT: &str = "slate rocks 1\n";

/// Returns true if the directory is empty or missing, and an error if it is not one of ours.
pub(super) fn check_format(path: &Path) -> std::result::Result<bool, String> {
    fs::create_dir_all(path).map_err(|error| error.to_string())?;
    match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(format) if format == FORMAT => {
            if path.join("rocks/CURRENT").exists() {
                Ok(false)
            } else {
                Err("damaged: it is marked as Slate's, but RocksDB's CURRENT file is missing".to_owned())
            }
        }
        Ok(format) => Err(format!("written in another format: {:?}", format.trim_end())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let entries = fs::read_dir(path).map_err(|error| error.to_string())?;
            // A crash before the format file was written leaves `rocks`; filesystems leave `lost+found`.
            let ours = |name: &std::ffi::OsStr| name == "rocks" || name == "lost+found";
            let foreign = entries.flatten().map(|entry| entry.file_name()).find(|name| !ours(name));
            match foreign {
                Some(name) => Err(format!("not Slate's: it contains {}", PathBuf::from(name).display())),
                None => Ok(true),
            }
        }
        Err(error) => Err(format!("{FORMAT_FILE}: {error}")),
    }
}

/// Marks a directory as ours, durably.
pub(super) fn write_format(path: &Path) -> std::result::Result<(), String> {
    let write = || -> std::io::Result<()> {
        let temporary = path.join("SLATE_FORMAT.new");
        fs::write(&temporary, FORMAT)?;
        fs::File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, path.join(FORMAT_FILE))?;
        fs::File::open(path)?.sync_all()
    };
    write().map_err(|error| format!("{FORMAT_FILE}: {error}"))
}
