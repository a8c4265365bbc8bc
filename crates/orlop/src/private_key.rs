//! Files with secrets that a user passes.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context, bail};

/// Read, write and execute permissions of users who neither own the file nor are in its group.
const OTHERS: u32 = 0o007;

/// Refuses a file with a private key or tokens that every user of the machine can access. Access by a group is
/// left to the administrator: a group for keys is common.
pub(crate) fn refuse_if_public(path: &Path) -> anyhow::Result<()> {
    let metadata = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        bail!(
            "{0} holds a secret and every user of this machine has access to it (mode {mode:04o}): \
             run chmod o= {0}",
            path.display()
        );
    }
    Ok(())
}
