//! Files of a database: their names, and their creation for their owner alone.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use super::{errors::sql_error, schema};
use crate::{
    error::{Error, Result},
    private_files,
};

/// Files beside the database: SQLite's own and the disk reserve.
const COMPANIONS: [&str; 4] = ["-wal", "-shm", "-journal", "-reserve"];

/// Creates the database file for its owner alone, and restricts files that others can read. SQLite gives the
/// write-ahead log and its index the mode of the database.
pub(super) fn create_privately(path: &Path) {
    // Errors are left to SQLite, which meets the same ones: a read-only file system must not fail here.
    if !path.exists() && create_complete(path).is_err() {
        let _ = private_files::create_new(path);
    }
    let companions = COMPANIONS.iter().map(|suffix| companion(path, suffix));
    for file in std::iter::once(path.to_owned()).chain(companions) {
        if let Err(error) = private_files::restrict(&file)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %file.display(), "cannot restrict the file's permissions to its owner");
        }
    }
}

/// Creates a database with its tables under another name, and links it to its own once it is on the disk. SQLite would
/// wait for the disk ten times to create it in place.
fn create_complete(path: &Path) -> Result<()> {
    let temporary = companion(path, &format!("-new-{}", std::process::id()));
    let _ = fs::remove_file(&temporary);
    let created = schema::new_file(&temporary).and_then(|connection| {
        connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(())).map_err(sql_error)?;
        // The last connection copies the log into the database, and deletes it.
        connection.close().map_err(|(_, error)| sql_error(error))?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let linked = File::open(&temporary)
            .and_then(|file| file.sync_all())
            // Fails if another process has created the database meanwhile.
            .and_then(|()| fs::hard_link(&temporary, path))
            .and_then(|()| File::open(directory.unwrap_or(Path::new(".")))?.sync_all());
        linked.map_err(|error| Error::Unavailable(format!("cannot create {}: {error}", path.display())))
    });
    let _ = fs::remove_file(&temporary);
    created
}

/// The path of a file beside the database.
pub(super) fn companion(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
