//! Online backup.
//!
//! `VACUUM INTO` will not do: a connection that may only read refuses it, and one to a database in memory
//! writes the copy to memory too. The backup interface copies page by page, here all pages in one step and
//! so from one snapshot; with a write-ahead log nobody waits for it.

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

/// Copies the whole database to a new file. A copy cut short never has the file's name.
pub(super) fn write(connection: &Connection, path: &Path) -> Result<()> {
    if path.exists() {
        return Err(Error::Invalid(format!("{} exists already", path.display())));
    }
    let mut unfinished = OsString::from(path);
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let copied = copy(connection, &unfinished).and_then(|()| {
        fs::rename(&unfinished, path)
            .and_then(|()| {
                fs::File::open(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
                    .sync_all()
            })
            .map_err(|error| Error::Unavailable(format!("cannot name the snapshot: {error}")))
    });
    if copied.is_err() {
        // Nothing is lost if this fails: the next snapshot tries again.
        let _ = fs::remove_file(&unfinished);
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
