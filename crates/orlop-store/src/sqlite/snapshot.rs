//! Online backup.
//!
//! `VACUUM INTO` does not work here: a read-only connection refuses it, and one to a database in memory writes the copy
//! to memory too. The backup API copies page by page, here all pages in one step and so from one snapshot. With a
//! write-ahead log nobody waits for it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection,
    backup::{Backup, StepResult},
};

use super::errors::sql_error;
use crate::{
    error::{Error, Result},
    private_files,
};

/// Copies the whole database to a new file. An incomplete copy never has the file's name.
pub(super) fn write(connection: &Connection, path: &Path) -> Result<()> {
    if path.exists() {
        return Err(Error::Invalid(format!("{} exists already", path.display())));
    }
    let mut partial = OsString::from(path);
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let copied = copy(connection, &partial).and_then(|()| {
        fs::rename(&partial, path)
            .and_then(|()| {
                fs::File::open(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
                    .sync_all()
            })
            .map_err(|error| Error::Unavailable(format!("cannot rename the snapshot: {error}")))
    });
    if copied.is_err() {
        // The next snapshot tries again if this fails.
        let _ = fs::remove_file(&partial);
    }
    copied
}

fn copy(connection: &Connection, path: &Path) -> Result<()> {
    let _ = fs::remove_file(path);
    private_files::create_new(path)
        .map_err(|error| Error::Unavailable(format!("cannot create {}: {error}", path.display())))?;
    let mut target = Connection::open(path).map_err(sql_error)?;
    let step = Backup::new(connection, &mut target).and_then(|backup| backup.step(-1)).map_err(sql_error)?;
    match step {
        StepResult::Done => Ok(()),
        _ => Err(Error::Unavailable("the database is too busy for a snapshot".into())),
    }
}
