//! The columns of each list: their names, their widths, and the terminal width from which they are
//! shown.

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Pid,
    Rate,
    ObjectRate,
    History,
    Held,
    HeldError,
    Objects,
    ObjectsError,
    Allocated,
    Cost,
    CostError,
    Resident,
    Interval,
    Own,
    OwnError,
    OwnShare,
    Total,
    TotalError,
    Share,
    Samples,
    Name,
    Place,
}

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) column: Column,
    /// The width in characters; 0: all the space that the other columns leave.
    width: usize,
    /// The minimum width of the terminal. On a narrower terminal the column is hidden.
    from: usize,
}

const fn spec(column: Column, width: usize, from: usize) -> Spec {
    Spec { column, width, from }
}

/// The columns of the list of processes.
pub(super) const PROCESSES: &[Spec] = &[
    spec(Column::Pid, 7, 0),
    spec(Column::Rate, 8, 0),
    spec(Column::ObjectRate, 6, 0),
    spec(Column::History, 8, 76),
    spec(Column::Held, 8, 0),
    spec(Column::HeldError, 5, 0),
    spec(Column::Objects, 7, 100),
    spec(Column::ObjectsError, 5, 100),
    spec(Column::Allocated, 9, 112),
    spec(Column::Resident, 8, 122),
    spec(Column::Samples, 7, 132),
    spec(Column::Interval, 8, 142),
    spec(Column::Cost, 5, 66),
    spec(Column::CostError, 5, 66),
    spec(Column::Name, 0, 0),
];

/// The columns of the functions of a process.
pub(super) const FUNCTIONS: &[Spec] = &[
    spec(Column::Own, 8, 0),
    spec(Column::OwnError, 5, 0),
    spec(Column::OwnShare, 5, 66),
    spec(Column::Total, 8, 0),
    spec(Column::TotalError, 5, 0),
    spec(Column::Samples, 7, 96),
    spec(Column::History, 12, 120),
    spec(Column::Name, 0, 0),
    spec(Column::Place, 16, 72),
];

/// The columns of the stacks of a process.
pub(super) const STACKS: &[Spec] = &[
    spec(Column::Total, 8, 0),
    spec(Column::TotalError, 5, 0),
    spec(Column::Share, 5, 0),
    spec(Column::Samples, 7, 72),
    spec(Column::Name, 0, 0),
];

impl Column {
    /// Returns the heading. It differs if the column's numbers are per second.
    pub(super) fn head(self, is_rate: bool) -> &'static str {
        match self {
            Column::Pid => "PID",
            Column::Rate => "ALLOC/s",
            Column::ObjectRate => "OBJ/s",
            Column::History => "HISTORY",
            Column::Held => "HELD",
            Column::Objects => "OBJECTS",
            Column::HeldError
            | Column::ObjectsError
            | Column::CostError
            | Column::OwnError
            | Column::TotalError => "±",
            Column::Allocated => "ALLOCATED",
            Column::Cost => "COST",
            Column::Resident => "RSS",
            Column::Interval => "INTERVAL",
            Column::Own if is_rate => "SELF/s",
            Column::Own => "SELF",
            Column::OwnShare => "SELF%",
            Column::Total if is_rate => "TOTAL/s",
            Column::Total => "TOTAL",
            Column::Share => "%",
            Column::Samples => "SAMPLES",
            Column::Name => "NAME",
            Column::Place => "FILE:LINE",
        }
    }

    /// Returns the column's name in the menu; `None` if no list can be sorted by the column.
    pub(super) fn in_menu(self, is_rate: bool) -> Option<&'static str> {
        match self {
            Column::History
            | Column::HeldError
            | Column::ObjectsError
            | Column::CostError
            | Column::OwnError
            | Column::TotalError
            | Column::OwnShare
            | Column::Share => None,
            column => Some(column.head(is_rate)),
        }
    }

    /// Whether the column is text: left-aligned, and sorted from the smallest.
    pub(super) fn is_text(self) -> bool {
        matches!(self, Column::Name | Column::Place)
    }
}

/// Returns the columns that a terminal of this width shows, with their widths. One blank is between
/// two columns.
pub(super) fn fitting(specs: &[Spec], width: usize) -> Vec<(Column, usize)> {
    let there = || specs.iter().filter(|spec| spec.from <= width);
    let taken: usize = there().map(|spec| spec.width + 1).sum();
    // The place column of a function grows with the terminal.
    let extra = if width > 100 { (width - 100) / 3 } else { 0 };
    let with_place = there().any(|spec| spec.column == Column::Place);
    let rest = (width + 1).saturating_sub(taken + if with_place { extra } else { 0 });
    let wide = |spec: &Spec| match (spec.width, spec.column) {
        (0, _) => rest.max(1),
        (width, Column::Place) => width + extra,
        (width, _) => width,
    };
    there().map(|spec| (spec.column, wide(spec))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_line() {
        for specs in [PROCESSES, FUNCTIONS, STACKS] {
            for width in 60..300 {
                let columns = fitting(specs, width);
                let taken: usize = columns.iter().map(|(_, width)| width + 1).sum();
                assert_eq!(taken, width + 1, "{columns:?}");
                let name = columns.iter().find(|(column, _)| *column == Column::Name);
                assert!(name.is_some_and(|(_, width)| *width >= 12), "{width}: {columns:?}");
            }
        }
    }
}
